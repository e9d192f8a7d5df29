//! All that a daemon does in a day, and that needs rights or tools.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use orlop_tests::*;

const SIZE: u64 = 320 * MIB;
const LARGER: u64 = 384 * MIB;
/// A user whose files no other user may read.
const STRANGER: u32 = 1234;

pub(crate) async fn of_all_filesystems(client: &Client) {
    for fs in ["ext4", "xfs", "btrfs"] {
        of_a_filesystem(client, fs).await;
    }
    of_a_device(client).await;
}

async fn of_a_filesystem(client: &Client, fs: &str) {
    let volume = client.create(fs).size(SIZE).fs(fs).done().await;
    let id = &volume.volume_id;
    client.controller_publish(id, "test-node", mount(fs), false).await.unwrap();
    let mut node = client.on_node(&volume, for_group(fs, 4321));
    node.target = below_a_strangers_directory(client, fs);
    node.up().await;
    Pattern::new(1).write(&node.data_path(), 4 * MIB);
    let inside = node.target.join("inside");
    fs::create_dir(&inside).unwrap();
    give_to_stranger(&inside, 0o700);
    give_to_stranger(&node.data_path(), 0o600);
    let snapshot = client.snapshot(&format!("{fs}-s"), id).await.unwrap();
    let group = client.group_snapshot(&format!("{fs}-g"), std::slice::from_ref(id)).await.unwrap();

    client.expand(id, LARGER).await.unwrap();
    match node.expand(LARGER).await {
        Ok(_) => {}
        // ext4 needs a capability that not every machine gives.
        Err(status) if fs == "ext4" => assert_eq!(status.code(), Code::FailedPrecondition),
        Err(status) => panic!("NodeExpandVolume {fs}: {status}"),
    }
    client.modify(id, &[("writeIops", "100000")]).await.unwrap();
    node.stats().await.unwrap();
    node.down().await;
    // Checked, and grown if it was not before; and given to another group with all that is in it.
    let node = node.with_capability(for_group(fs, 4322));
    node.up().await;
    Pattern::new(1).check(&node.data_path(), 4 * MIB);
    assert_eq!(access_of(&node.data_path()), (STRANGER, 4322, 0o660));
    assert_eq!(access_of(&inside), (STRANGER, 4322, 0o2770));
    node.down().await;
    client.controller_unpublish(id, "test-node").await.unwrap();

    let copy = client.create(&format!("{fs}-c")).size(SIZE).fs(fs);
    let copy = copy.from_snapshot(&snapshot.snapshot_id).done().await;
    let restored = client.on_node(&copy, mount(fs));
    restored.stage().await.unwrap();
    restored.publish_at(&restored.target, true).await.unwrap();
    Pattern::new(1).check(&restored.data_path(), 4 * MIB);
    assert!(fs::write(restored.target.join("x"), "").is_err(), "it is read-only");
    restored.down().await;
    client.delete(&copy.volume_id).await.unwrap();
    let members: Vec<String> = group.snapshots.iter().map(|it| it.snapshot_id.clone()).collect();
    client.delete_group_snapshot(&group.group_snapshot_id, &members).await.unwrap();
    client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    client.delete(id).await.unwrap();
}

fn for_group(fs: &str, group: u32) -> v1::VolumeCapability {
    let mut capability = mount(fs);
    let Some(v1::volume_capability::AccessType::Mount(access)) = &mut capability.access_type else {
        panic!("a mount");
    };
    access.volume_mount_group = group.to_string();
    capability
}

fn below_a_strangers_directory(client: &Client, name: &str) -> PathBuf {
    let directory = client.scratch().ensure_dir(format!("home-{name}"));
    give_to_stranger(&directory, 0o700);
    directory.join("target")
}

pub(crate) fn give_to_stranger(path: &Path, mode: u32) {
    chown(path, Some(STRANGER), Some(STRANGER)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// User, group and mode.
fn access_of(path: &Path) -> (u32, u32, u32) {
    let there = fs::metadata(path).unwrap();
    (there.uid(), there.gid(), there.mode() & 0o7777)
}

async fn of_a_device(client: &Client) {
    let volume = client.create("raw").size(64 * MIB).block().thick().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(2).write(&node.data_path(), 4 * MIB);
    Pattern::new(2).check(&node.data_path(), 4 * MIB);
    node.down().await;
    client.delete(&volume.volume_id).await.unwrap();
}

/// What a controller does that has no node beside it.
pub(crate) async fn of_a_controller(client: &Client) {
    let volume = client.create("v").size(64 * MIB).block().done().await;
    let id = &volume.volume_id;
    let snapshot = client.snapshot("s", id).await.unwrap();
    let copy = client.create("c").size(64 * MIB).block().from_snapshot(&snapshot.snapshot_id);
    let copy = copy.done().await;
    client.expand(id, 128 * MIB).await.unwrap();
    client.delete(&copy.volume_id).await.unwrap();
    client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    client.delete(id).await.unwrap();
}
