//! EncryptionKeyRotate while a workload writes.

use encryptionkeyrotation::EncryptionKeyRotateRequest;
use encryptionkeyrotation::encryption_key_rotation_controller_client::EncryptionKeyRotationControllerClient;
use orlop_tests::*;

use super::*;

const NEXT: &str = "the next key";

async fn rotate(client: &Client, node: &OnNode, new: &str, secrets: &[(&str, &str)]) -> Answer<()> {
    let request = EncryptionKeyRotateRequest {
        volume_id: node.id.clone(),
        volume_path: node.staging.to_str().unwrap().to_owned(),
        encryption_key: new.to_owned(),
        secrets: secrets.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        volume_capability: Some(node.capability.clone()),
        ..Default::default()
    };
    let mut rotation = EncryptionKeyRotationControllerClient::new(client.channel());
    rotation.encryption_key_rotate(request).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_exchanged_in_use() {
    needs_encryption!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let daemon = launch(&pool).start().await;
    let client = daemon.client();
    let node = new_volume(&client, "v", 64 * MIB, mount("ext4")).await;
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);
    let saved = client.snapshot("s", &node.id).await.unwrap();
    let (old, next) = (("encryptionPassphrase", KEY), ("encryptionPassphrase", NEXT));
    let previous = ("previousEncryptionPassphrase", KEY);

    expect_code(rotate(&client, &node, NEXT, &[]).await, Code::InvalidArgument);
    let wrong = [("encryptionPassphrase", "wrong")];
    expect_code(rotate(&client, &node, NEXT, &wrong).await, Code::Unauthenticated);
    for secrets in [&[old][..], &[old], &[next], &[next, previous]] {
        rotate(&client, &node, NEXT, secrets).await.unwrap();
    }
    Pattern::new(1).check(&node.data_path(), MIB);
    Pattern::new(2).write(&node.data_path(), MIB);
    node.down().await;
    expect_code(node.stage().await, Code::Unauthenticated);
    let by_next = node.with_key(NEXT);
    by_next.up().await;
    Pattern::new(2).check(&node.data_path(), MIB);

    // Copies that were taken before keep the old key, and a Secret may have both.
    let restored = encrypted(client.create("r").size(64 * MIB).fs("ext4"));
    let restored = restored.from_snapshot(&saved.snapshot_id).done().await;
    let restored = client.on_node(&restored, mount("ext4"));
    expect_code(restored.with_key(NEXT).stage().await, Code::Unauthenticated);
    let by_both = restored.with_secrets(&[next, previous]);
    by_both.up().await;
    Pattern::new(1).check(&by_both.data_path(), MIB);
    rotate(&client, &by_both, "", &[next, previous]).await.unwrap();
    by_both.down().await;
    by_both.with_key(NEXT).up().await;
    for node in [by_both, by_next] {
        node.down().await;
        expect_code(rotate(&client, &node, NEXT, &[next]).await, Code::NotFound);
        client.delete(&node.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_the_operator_is_read_when_it_is_needed() {
    needs_encryption!();
    use std::os::unix::fs::PermissionsExt;
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let file = pool.scratch().join("volumes.key");
    let write = |path: &Path, key: &str, mode| {
        std::fs::write(path, key).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let daemon = launch(&pool).env("ORLOP_ENCRYPTION_KEY_FILE", &file).start().await;
    let client = daemon.client();
    let node = new_volume(&client, "v", 64 * MIB, mount("ext4")).await;
    let node = node.with_secrets(&[]);
    expect_code(node.stage().await, Code::FailedPrecondition);
    write(&file, "key of all", 0o644);
    expect_code(node.stage().await, Code::FailedPrecondition);
    write(&file, "key of all", 0o600);
    node.up().await;
    Pattern::new(1).write(&node.data_path(), MIB);
    write(&pool.scratch().join("volumes.key.previous"), "key of all", 0o600);
    write(&file, NEXT, 0o600);
    rotate(&client, &node, "", &[]).await.unwrap();
    std::fs::remove_file(pool.scratch().join("volumes.key.previous")).unwrap();
    node.down().await;
    node.up().await;
    Pattern::new(1).check(&node.data_path(), MIB);
    node.down().await;
    client.delete(&node.id).await.unwrap();
}
