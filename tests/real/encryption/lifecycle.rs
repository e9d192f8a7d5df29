//! Staged, used, copied, grown, across restarts, with each filesystem and raw.

use std::os::unix::fs::FileExt;

use orlop_tests::*;

use super::*;

const SIZE: u64 = 384 * MIB;
const GROWN: u64 = 512 * MIB;
const WRITTEN: u64 = 3 * MIB;
const MARK: &str = "A MARK THAT MUST NOT BE ON THE DISK";

fn write_mark(node: &OnNode) {
    let mark = MARK.repeat(1000);
    if node.capability.is_block() {
        let device = std::fs::File::options().write(true).open(&node.target).unwrap();
        device.write_all_at(mark.as_bytes(), 2 * WRITTEN).unwrap();
        return device.sync_all().unwrap();
    }
    let file = node.target.join("mark");
    std::fs::write(&file, &mark).unwrap();
    orlop_sys::file::sync_filesystem(&node.target).unwrap();
    assert!(holds(&file, MARK));
}

async fn lives(how: v1::VolumeCapability) {
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut daemon = launch(&pool).start().await;
    let client = daemon.client();
    let node = new_volume(&client, "v", SIZE, how.clone()).await;
    node.up().await;
    let name = format!("orlop-crypt-{}", node.id);
    assert_eq!(mappings(&node.id), std::slice::from_ref(&name));
    Pattern::new(1).write(&node.data_path(), WRITTEN);
    write_mark(&node);
    // The kernel knows what is open, and the key is asked for again.
    daemon.restart().await;
    node.stage().await.unwrap();
    expect_code(node.with_key("wrong").stage().await, Code::Unauthenticated);
    Pattern::new(1).check(&node.data_path(), WRITTEN);
    daemon.kill9();
    daemon.restart().await;
    node.stage().await.unwrap();
    let saved = client.snapshot("s", &node.id).await.unwrap();
    Pattern::new(2).write(&node.data_path(), WRITTEN);

    // Online, and without the key.
    client.expand(&node.id, GROWN).await.unwrap();
    node.expand(GROWN).await.unwrap();
    let total = orlop_sys::loopdev::size(&Path::new("/dev/mapper").join(&name)).unwrap();
    assert_eq!(total, GROWN - HEADER);
    let usage = node.stats().await.unwrap().usage;
    let total = usage.iter().map(|usage| usage.total).max().unwrap();
    assert!(total <= int(GROWN - HEADER) && total > int(SIZE), "{total}");
    Pattern::new(2).check(&node.data_path(), WRITTEN);
    node.down().await;
    assert_eq!(mappings(&node.id), [""; 0]);

    let image = pool.volume_data(&node.id);
    assert!(!holds(&image, MARK), "the mark is in {}", image.display());
    expect_code(node.with_key("wrong").stage().await, Code::Unauthenticated);
    expect_code(node.with_secrets(&[]).stage().await, Code::InvalidArgument);
    assert_eq!(daemon.devices_and_mounts(), [""; 0]);
    node.up().await;
    Pattern::new(2).check(&node.data_path(), WRITTEN);

    // Copies have the same key, beside their original.
    let plain = client.create("p").size(SIZE).capability(how.clone());
    let refused = plain.clone().from_snapshot(&saved.snapshot_id).send().await;
    expect_code(refused, Code::InvalidArgument);
    let restored = encrypted(plain.clone().size(GROWN)).from_snapshot(&saved.snapshot_id);
    let restored = client.on_node(&restored.done().await, how.clone()).with_key(KEY);
    restored.up().await;
    Pattern::new(1).check(&restored.data_path(), WRITTEN);
    let clone = encrypted(client.create("c").size(GROWN).capability(how.clone()));
    let clone = clone.from_volume(&node.id).done().await;
    let clone = client.on_node(&clone, how.clone()).with_key(KEY);
    clone.up().await;
    Pattern::new(2).check(&clone.data_path(), WRITTEN);
    Pattern::new(3).write(&clone.data_path(), WRITTEN);
    Pattern::new(2).check(&node.data_path(), WRITTEN);
    for node in [&clone, &restored, &node] {
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    client.delete_snapshot(&saved.snapshot_id).await.unwrap();
    daemon.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_ext4() {
    needs_encryption!();
    lives(mount("ext4")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_xfs() {
    needs_encryption!();
    lives(mount("xfs")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_btrfs() {
    needs_encryption!();
    lives(mount("btrfs")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raw() {
    needs_encryption!();
    lives(block()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_that_is_not_encrypted_takes_no_key() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    expect_code(node.with_key(KEY).stage().await, Code::InvalidArgument);
    // Secrets of other purposes are fine.
    let other = node.with_secrets(&[("token", "x")]);
    other.up().await;
    other.down().await;
    client.delete(&other.id).await.unwrap();
}

/// A second device, which refuses writes, takes the key once more.
#[tokio::test(flavor = "multi_thread")]
async fn raw_volume_is_read_by_a_second_mapping() {
    needs_encryption!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let daemon = launch(&pool).start().await;
    let client = daemon.client();
    let node = new_volume(&client, "v", 64 * MIB, block()).await;
    node.up().await;
    Pattern::new(1).write(&node.target, WRITTEN);
    node.unpublish().await.unwrap();
    let reader = |secrets| v1::NodePublishVolumeRequest {
        readonly: true,
        secrets,
        ..node.publish_request()
    };
    let refused = client.node_publish(reader(Default::default())).await;
    expect_code(refused, Code::InvalidArgument);
    client.node_publish(reader(node.secrets.clone())).await.unwrap();
    assert_eq!(mappings(&node.id).len(), 2);
    Pattern::new(1).check(&node.target, WRITTEN);
    let written = std::fs::File::options().write(true).open(&node.target);
    assert!(
        written
            .and_then(|device| {
                device.write_all_at(&[0; 4096], 0)?;
                device.sync_all()
            })
            .is_err()
    );
    node.down().await;
    assert_eq!(mappings(&node.id), [""; 0]);

    let reading = node.with_capability(block().mode(Mode::SingleNodeReaderOnly));
    client.delete(&node.id).await.unwrap();
    let how = vec![block(), reading.capability.clone()];
    let volume = encrypted(client.create("w").size(64 * MIB).capabilities(how)).done().await;
    let fresh = client.on_node(&volume, reading.capability.clone()).with_key(KEY);
    // Nothing was ever written, so there is no key yet.
    expect_code(fresh.stage().await, Code::FailedPrecondition);
    let writing = client.on_node(&volume, block()).with_key(KEY);
    writing.up().await;
    Pattern::new(2).write(&writing.target, WRITTEN);
    writing.down().await;
    fresh.up().await;
    assert_eq!(mappings(&fresh.id), [format!("orlop-crypt-{}-ro", fresh.id)]);
    Pattern::new(2).check(&fresh.target, WRITTEN);
    fresh.down().await;
    client.delete(&fresh.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn discards_reach_the_pool_unless_they_must_not() {
    needs_encryption!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = launch(&pool).start().await;
    let client = daemon.client();
    for passes_on in [true, false] {
        let create = encrypted(client.create("v").size(SIZE).fs("ext4"));
        let create = create.parameter("encryptionDiscard", &passes_on.to_string());
        let node = client.on_node(&create.done().await, mount("ext4")).with_key(KEY);
        node.up().await;
        let waste = node.target.join("waste");
        Pattern::new(2).write(&waste, 64 * MIB);
        let image = pool.volume_data(&node.id);
        let taken = orlop_sys::file::allocated_bytes(&image).unwrap();
        std::fs::remove_file(&waste).unwrap();
        orlop_sys::file::sync_filesystem(&node.target).unwrap();
        let trimmed = orlop_sys::filesystem::trim(&node.target);
        assert_eq!(trimmed.is_ok(), passes_on);
        let left = orlop_sys::file::allocated_bytes(&image).unwrap();
        assert_eq!(left + 60 * MIB < taken, passes_on, "{taken}, then {left}");
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_volume_is_encrypted_with_the_key_of_its_publication() {
    needs_encryption!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let daemon = launch(&pool).start().await;
    let client = daemon.client();
    let id = format!("csi-{}", "0123456789abcdef".repeat(4));
    let target = client.new_target("inline");
    let request = |secrets: &[(&str, &str)]| v1::NodePublishVolumeRequest {
        volume_id: id.clone(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(mount("ext4")),
        volume_context: [
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("size", "64Mi"),
            ("encryption", "luks2"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        secrets: secrets.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        ..Default::default()
    };
    expect_code(client.node_publish(request(&[])).await, Code::InvalidArgument);
    let key = [("encryptionPassphrase", KEY)];
    client.node_publish(request(&key)).await.unwrap();
    Pattern::new(1).write(&target.join("data"), MIB);
    client.node_publish(request(&key)).await.unwrap();
    client.node_unpublish(&id, &target).await.unwrap();
    assert_eq!(daemon.devices_and_mounts(), [""; 0]);
    assert_eq!(client.list_volumes().await.unwrap(), []);
}
