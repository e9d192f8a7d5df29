//! Secrets reach neither a log nor a tool nor a file; only root can read mount flags.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use orlop_tests::*;

pub(crate) const SECRET: &str = "canary-c7e1f0";
/// A commit interval whose digits cannot be part of a time stamp in the log.
const FLAG: &str = "commit=1873131";
const OTHER_FLAG: &str = "commit=1873132";
pub(crate) const FLAG_VALUE: &str = "1873131";
const REFUSED_FLAG: &str = "password=canary-9b3d55";

fn secrets() -> BTreeMap<String, String> {
    [("token", SECRET), ("user.key-2_b", SECRET)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Every call that carries secrets, with the canary in them.
pub(crate) async fn use_secrets_everywhere(client: &Client) {
    let flagged = mount("ext4").flags(&[FLAG]);
    let mut create = client.create("v").size(64 * MIB).capability(flagged.clone());
    create.request.secrets = secrets();
    let volume = create.done().await;
    let id = volume.volume_id.clone();
    let mut controller = client.controller();
    let node = client.on_node(&volume, flagged.clone());

    let request = v1::ControllerPublishVolumeRequest {
        volume_id: id.clone(),
        node_id: "test-node".to_owned(),
        volume_capability: Some(flagged.clone()),
        secrets: secrets(),
        ..Default::default()
    };
    controller.controller_publish_volume(request).await.unwrap();
    let request = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: id.clone(),
        volume_capabilities: vec![flagged.clone()],
        secrets: secrets(),
        ..Default::default()
    };
    controller.validate_volume_capabilities(request).await.unwrap();
    let request = v1::NodeStageVolumeRequest { secrets: secrets(), ..node.stage_request() };
    client.node_stage(request).await.unwrap();
    let request = v1::NodePublishVolumeRequest { secrets: secrets(), ..node.publish_request() };
    client.node_publish(request).await.unwrap();

    let snapshot = snapshot_with_secrets(client, &id).await;
    let more = Some(v1::CapacityRange { required_bytes: int(96 * MIB), limit_bytes: 0 });
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range: more,
        secrets: secrets(),
        ..Default::default()
    };
    controller.controller_expand_volume(request).await.unwrap();
    let request = v1::NodeExpandVolumeRequest {
        volume_id: id.clone(),
        volume_path: node.target.to_str().unwrap().to_owned(),
        secrets: secrets(),
        ..Default::default()
    };
    // Whether a mounted ext4 may grow depends on the machine.
    let _ = client.node().node_expand_volume(request).await;
    let request = v1::ControllerModifyVolumeRequest {
        volume_id: id.clone(),
        mutable_parameters: [("readIops".to_owned(), "max".to_owned())].into(),
        secrets: secrets(),
    };
    let _ = controller.controller_modify_volume(request).await;

    refuse_a_flag(&node).await;
    node.down().await;
    let request = v1::ControllerUnpublishVolumeRequest {
        volume_id: id.clone(),
        node_id: "test-node".to_owned(),
        secrets: secrets(),
    };
    controller.controller_unpublish_volume(request).await.unwrap();
    let request = v1::DeleteSnapshotRequest { snapshot_id: snapshot, secrets: secrets() };
    controller.delete_snapshot(request).await.unwrap();
    let request = v1::DeleteVolumeRequest { volume_id: id, secrets: secrets() };
    controller.delete_volume(request).await.unwrap();
}

async fn snapshot_with_secrets(client: &Client, id: &str) -> String {
    let mut controller = client.controller();
    let request = v1::CreateSnapshotRequest {
        source_volume_id: id.to_owned(),
        name: "s".to_owned(),
        secrets: secrets(),
        ..Default::default()
    };
    let answer = controller.create_snapshot(request).await.unwrap().into_inner();
    let snapshot = answer.snapshot.unwrap().snapshot_id;
    let request = v1::ListSnapshotsRequest {
        snapshot_id: snapshot.clone(),
        secrets: secrets(),
        ..Default::default()
    };
    controller.list_snapshots(request).await.unwrap();
    let request = v1::GetSnapshotRequest { snapshot_id: snapshot.clone(), secrets: secrets() };
    controller.get_snapshot(request).await.unwrap();
    snapshot
}

pub(crate) async fn stage_with_secrets(client: &Client, name: &str) -> OnNode {
    let flagged = mount("ext4").flags(&[FLAG]);
    // With mkfs options a volume is not created from a template.
    let create = client.create(name).size(64 * MIB).parameter("mkfsOptions", "-L secret");
    let mut create = create.capability(flagged.clone());
    create.request.secrets = secrets();
    let node = client.on_node(&create.done().await, flagged);
    let request = v1::NodeStageVolumeRequest { secrets: secrets(), ..node.stage_request() };
    client.node_stage(request).await.unwrap();
    node
}

/// GEN-38: not even in the refusal.
async fn refuse_a_flag(node: &OnNode) {
    let refused = node.with_capability(mount("ext4").flags(&[REFUSED_FLAG]));
    let status = expect_code(refused.stage().await, Code::InvalidArgument);
    assert!(!status.message().contains("canary"), "{status}");
    let other = node.with_capability(mount("ext4").flags(&[OTHER_FLAG]));
    let status = expect_code(other.stage().await, Code::AlreadyExists);
    assert!(!status.message().contains("187313"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_and_mount_flags_do_not_leak() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Launch::on(&pool).env("ORLOP_LOG", "trace").start().await;
    let client = daemon.client();
    let run_dir = pool.scratch().join("run");
    let watcher = ChildWatcher::on(daemon.pid());

    use_secrets_everywhere(&client).await;
    // Left staged, so that there are records to search.
    let node = stage_with_secrets(&client, "kept").await;
    let directories = [pool.path.as_path(), run_dir.as_path()];
    assert_eq!(files_that_hold(&directories, SECRET), [] as [PathBuf; 0]);
    for path in files_that_hold(&directories, FLAG_VALUE) {
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} may be read by others", path.display());
    }
    node.unstage().await.unwrap();
    let stage_another = async |round| {
        let another = stage_with_secrets(&client, &format!("more {round}")).await;
        another.unstage().await.unwrap();
    };
    watcher.until_seen("mkfs.ext4", stage_another).await;
    for line in &watcher.seen() {
        assert!(!line.contains(SECRET) && !line.contains(FLAG_VALUE), "{line}");
    }
    daemon.terminate();
    let log = daemon.log();
    assert!(log.contains("TRACE"), "the log has all levels");
    for hidden in [SECRET, FLAG_VALUE, "canary"] {
        let leaking: Vec<_> = log.lines().filter(|line| line.contains(hidden)).collect();
        assert_eq!(leaking, [""; 0]);
    }
}

/// GEN-31 and GEN-36: strange keys are refused without being repeated, extra ones are ignored.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_secret_key_is_refused_and_not_shown() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Launch::on(&pool).env("ORLOP_LOG", "trace").start().await;
    let client = daemon.client();
    let mut create = client.create("v").size(64 * MIB).fs("ext4");
    create.request.secrets.insert("canary key".to_owned(), SECRET.to_owned());
    let status = expect_code(create.send().await, Code::InvalidArgument);
    assert!(!status.message().contains(SECRET), "{status}");
    daemon.terminate();
    assert!(!daemon.log().contains(SECRET));
}
