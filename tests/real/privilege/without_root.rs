//! A daemon that may not open loop devices, as one that is not root: the controller works.

use orlop_tests::*;

/// No capability at all, and devices that are another user's: as root is elsewhere without root, and
/// all directories of the test can still be reached. There are nodes for more devices than exist: other
/// tests add and remove devices.
const WITHOUT_RIGHTS: &str = "set -e
    mount -t tmpfs -o mode=755 none /dev
    mknod -m 666 /dev/null c 1 3
    mknod -m 666 /dev/urandom c 1 9
    for number in $(seq 0 255); do mknod -m 000 /dev/loop$number b 7 $number; done
    exec setpriv --bounding-set=-all --inh-caps=-all \"$0\" \"$@\"";

fn without_rights(launch: Launch) -> Launch {
    launch.run_by(&["/bin/sh", "-c", WITHOUT_RIGHTS]).with_own_mounts()
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_devices_do_not_block_controller_start() {
    needs_root!();
    // A loop device of this test, so that there is one in use.
    let other = TestPool::new(PoolFs::Xfs, GIB);
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = without_rights(Launch::on(&pool)).start().await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).block().done().await;
    let snapshot = client.snapshot("s", &volume.volume_id).await.unwrap();
    client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    client.delete(&volume.volume_id).await.unwrap();
    daemon.terminate();
    drop(other);
}

/// It would take the volume for unused, and delete it.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_on_a_device_that_cannot_be_opened_ends_the_start() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    daemon.kill9();
    let ended = without_rights(daemon.launch().clone()).run_to_end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output);
    let reason = ended.output.lines().last().unwrap_or_default();
    assert!(reason.contains("may not open") && reason.contains(&volume.volume_id), "{reason}");

    daemon.restart().await;
    node.down().await;
    daemon.terminate();
}
