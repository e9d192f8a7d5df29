//! A node lets go of volumes whose pool is absent: its disk is dead, or not mounted after a restart.
//! Workloads that have ended must not wait for it.

use std::path::{Path, PathBuf};

use orlop_sys::{loopdev, tool};
use orlop_tests::*;

use super::absent::{start_without, until_all_are_served};

const NO_NEW_POOL: &str = "create = false";

/// On the volume's file, by its name alone: a dead disk does not tell the label.
fn find_device(id: &str) -> Option<PathBuf> {
    let all = loopdev::all_backed().unwrap();
    let found = all.iter().find(|it| it.file.to_string_lossy().contains(id));
    found.map(|it| it.device.path())
}

fn is_attached(id: &str) -> bool {
    find_device(id).is_some()
}

fn device_of(id: &str) -> PathBuf {
    find_device(id).unwrap()
}

/// A daemon on the pools `there` and `disk`.
async fn start_on(there: &TestPool, disk: &TestPool) -> Daemon {
    drop(Launch::on_several(&[("there", there, ""), ("disk", disk, "")]).start().await);
    Launch::on_several(&[("there", there, ""), ("disk", disk, NO_NEW_POOL)]).start().await
}

/// A filesystem and a raw volume of the pool `disk`, published, with data in them.
async fn published(client: &Client) -> [OnNode; 2] {
    let create = |name: &str| client.create(name).size(64 * MIB).parameter("pool", "disk");
    let mounted = client.on_node(&create("mounted").fs("ext4").done().await, mount("ext4"));
    let raw = client.on_node(&create("raw").block().done().await, block());
    for node in [&mounted, &raw] {
        node.up().await;
    }
    Pattern::new(1).write(&mounted.target.join("data"), MIB);
    Pattern::new(2).write(&raw.target, MIB);
    [mounted, raw]
}

fn unmount_lazily(pool: &TestPool) {
    tool::run("umount", ["--lazy", pool.path.to_str().unwrap()]).unwrap();
}

async fn assert_let_go(client: &Client, volumes: &[OnNode]) {
    for node in volumes {
        // Nothing else works without the pool.
        expect_code(node.stage().await, Code::Unavailable);
        expect_code(client.delete(&node.id).await, Code::Unavailable);
        let early = expect_code(node.unstage().await, Code::FailedPrecondition);
        assert!(early.message().contains("still published"), "{early}");
        node.unpublish().await.unwrap();
        assert!(!node.target.exists(), "the target is left");
        node.unstage().await.unwrap();
        assert!(!is_attached(&node.id), "the device is left");
        // Repeated, as orchestrators do.
        node.unpublish().await.unwrap();
        node.unstage().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_dead_disk_are_let_go_after_a_restart() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let mut daemon = start_on(&there, &disk).await;
    let client = daemon.client();
    let volumes = published(&client).await;
    daemon.kill9();
    tool::run("xfs_io", ["-x", "-c", "shutdown", disk.path.to_str().unwrap()]).unwrap();

    start_without(&mut daemon, &client).await;
    assert_let_go(&client, &volumes).await;
    let unstaged = "unstaged a volume whose pool is not in service";
    assert_eq!(daemon.log().matches(unstaged).count(), 2, "{}", daemon.log_end());
    daemon.terminate();
}

/// What was written is there when the disk is.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_an_unmounted_disk_are_let_go_and_keep_data() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let mut daemon = start_on(&there, &disk).await;
    let client = daemon.client();
    let volumes = published(&client).await;
    daemon.kill9();
    unmount_lazily(&disk);

    start_without(&mut daemon, &client).await;
    assert_let_go(&client, &volumes).await;
    disk.unplug();
    disk.power_on();
    until_all_are_served(&client).await;
    let [mounted, raw] = volumes;
    for node in [&mounted, &raw] {
        node.up().await;
    }
    Pattern::new(1).check(&mounted.target.join("data"), MIB);
    Pattern::new(2).check(&raw.target, MIB);
    for node in [mounted, raw] {
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    daemon.terminate();
}

/// After a restart of the machine nothing is mounted and nothing recorded, and kubelet still calls.
#[tokio::test(flavor = "multi_thread")]
async fn cleanup_after_a_reboot_does_not_wait_for_the_disk() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let mut daemon = start_on(&there, &disk).await;
    let client = daemon.client();
    let volumes = published(&client).await;
    daemon.lose_machine();
    disk.unplug();
    start_without(&mut daemon, &client).await;
    for node in volumes {
        node.unpublish().await.unwrap();
        node.unstage().await.unwrap();
    }
    daemon.terminate();
}

fn remove(file: &Path) {
    std::fs::remove_file(file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_copy_of_lost_data_is_kept_without_its_pool() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let mut daemon = start_on(&there, &disk).await;
    let client = daemon.client();
    let [mounted, raw] = published(&client).await;
    daemon.kill9();
    remove(&disk.volume_data(&raw.id));
    unmount_lazily(&disk);

    start_without(&mut daemon, &client).await;
    raw.unpublish().await.unwrap();
    let kept = expect_code(raw.unstage().await, Code::FailedPrecondition);
    assert!(kept.message().contains("save the data with 'dd"), "{kept}");
    assert!(is_attached(&raw.id), "the only copy is gone");
    // It is given up.
    detach_by_hand(&device_of(&raw.id));
    raw.unstage().await.unwrap();
    mounted.down().await;
    daemon.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn device_in_use_elsewhere_is_kept_without_its_pool() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let mut daemon = start_on(&there, &disk).await;
    let client = daemon.client();
    let [mounted, raw] = published(&client).await;
    daemon.kill9();
    unmount_lazily(&disk);
    start_without(&mut daemon, &client).await;

    let workload = std::fs::File::open(device_of(&raw.id)).unwrap();
    raw.unpublish().await.unwrap();
    let kept = expect_code(raw.unstage().await, Code::FailedPrecondition);
    assert!(kept.message().contains("has it open"), "{kept}");
    assert!(is_attached(&raw.id));
    drop(workload);
    raw.unstage().await.unwrap();
    mounted.down().await;
    daemon.terminate();
}

/// It has to be deleted from its pool. If that is gone for good, the operator says so.
#[tokio::test(flavor = "multi_thread")]
async fn inline_volume_waits_for_its_pool_or_the_operator() {
    needs_root!();
    let there = TestPool::new(PoolFs::Directory, 0);
    let disk = there.beside("disk", PoolFs::Xfs, GIB);
    let mut daemon = start_on(&there, &disk).await;
    let client = daemon.client();
    let (id, target) = ("csi-0123456789", client.new_target("inline"));
    let context = [("csi.storage.k8s.io/ephemeral", "true"), ("size", "64Mi"), ("pool", "disk")];
    let request = v1::NodePublishVolumeRequest {
        volume_id: id.to_owned(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(mount("ext4")),
        volume_context: context.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..v1::NodePublishVolumeRequest::default()
    };
    client.node_publish(request).await.unwrap();
    let [volume] = disk.entries("volumes").try_into().unwrap();
    daemon.kill9();
    unmount_lazily(&disk);

    start_without(&mut daemon, &client).await;
    let waits = expect_code(client.node_unpublish(id, &target).await, Code::Unavailable);
    assert!(waits.message().contains("take it out of the configuration"), "{waits}");
    daemon.terminate();
    let mut without = Launch::on_several(&[("there", &there, "")]).start().await;
    client.node_unpublish(id, &target).await.unwrap();
    assert!(!target.exists() && !is_attached(&volume), "something is left");
    assert!(without.has_logged("unpublished an inline volume"), "{}", without.log_end());
    without.terminate();
    disk.unplug();
}
