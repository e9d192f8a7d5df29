//! The data of a volume is removed or replaced while it is staged. What the workload wrote is then in a
//! file without a name, which lasts as long as the loop device is on it.

use std::path::{Path, PathBuf};

use orlop_sys::{mounts, tool};
use orlop_tests::*;

use super::{flush, follow};

const VOLUME: u64 = 64 * MIB;
const DATA: u64 = 4 * MIB;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn in_use(client: &Client, name: &str, capability: v1::VolumeCapability) -> OnNode {
    let create = client.create(name).size(VOLUME).capability(capability.clone());
    let node = client.on_node(&create.done().await, capability);
    node.up().await;
    Pattern::new(1).write(&node.data_path(), DATA);
    flush(&node.data_path());
    node
}

fn device_of(pool: &TestPool, node: &OnNode) -> PathBuf {
    let found = orlop_sys::loopdev::find(&pool.volume_data(&node.id), false).unwrap();
    found.expect("an attached volume").path()
}

/// The kernel detaches a device that is mounted when it no longer is.
fn give_up(device: &Path, capability: &v1::VolumeCapability) {
    if capability.is_block() {
        detach_by_hand(device);
    } else {
        tool::run("losetup", ["--detach", text(device)]).unwrap();
    }
}

/// The answer says how to save the data, and how to detach the device without saving it.
#[track_caller]
fn refused_for(answer: Answer<()>, device: &Path) {
    let refused = expect_code(answer, Code::FailedPrecondition);
    let (text, device) = (refused.message(), device.display());
    assert!(text.contains(&format!("dd if={device} ")), "{text}");
    assert!(text.contains(&format!("'losetup --detach {device}'")), "{text}");
}

#[track_caller]
fn assert_advised(condition: &v1::VolumeCondition, device: &Path) {
    let (text, device) = (&condition.message, device.display());
    assert!(condition.abnormal, "{text}");
    assert!(text.contains(&format!("only on {device}; stop the workload")), "{text}");
    assert!(text.ends_with("as orlop doctor says"), "{text}");
}

async fn check_condition(client: &Client, node: &OnNode, device: &Path) {
    assert_advised(&client.condition(&node.id).await.unwrap(), device);
    let stats = client.node_stats(&node.id, &node.staging).await.unwrap();
    assert_advised(&stats.volume_condition.unwrap(), device);
}

fn replace(data: &Path) {
    let copy = data.with_extension("copy");
    tool::run("cp", ["--sparse=always", text(data), text(&copy)]).unwrap();
    std::fs::rename(copy, data).unwrap();
}

on_every_pool!(removed_data_is_kept_until_it_was_copied);

async fn removed_data_is_kept_until_it_was_copied(fs: PoolFs) {
    let pool = TestPool::new(fs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [block(), mount("ext4")] {
        let node = in_use(&client, "removed", capability.clone()).await;
        let (data, device) = (pool.volume_data(&node.id), device_of(&pool, &node));
        std::fs::remove_file(&data).unwrap();
        check_condition(&client, &node, &device).await;
        expect_code(client.snapshot("s", &node.id).await, Code::DataLoss);
        node.unpublish().await.unwrap();
        for restarted in [false, true] {
            if restarted {
                daemon.restart().await;
            }
            refused_for(node.unstage().await, &device);
            let mounted = mounts::mount_at(&node.staging).unwrap().is_some();
            assert_eq!(mounted, !capability.is_block(), "half unstaged");
            expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
            check_condition(&client, &node, &device).await;
        }

        // Not yet on the device.
        if !capability.is_block() {
            std::fs::write(node.staging.join("late"), Pattern::new(3).bytes(0, 1 << 20)).unwrap();
        }
        let advice = async || {
            let refused = expect_code(node.unstage().await, Code::FailedPrecondition);
            refused.message().to_owned()
        };
        follow(advice).await;
        node.unstage().await.unwrap();
        check_saved(&client, &node).await;
        client.delete(&node.id).await.unwrap();
    }
}

/// What was written first, and what was written last.
async fn check_saved(client: &Client, node: &OnNode) {
    assert!(!client.condition(&node.id).await.unwrap().abnormal);
    node.up().await;
    Pattern::new(1).check(&node.data_path(), DATA);
    if node.target.is_dir() {
        let late = std::fs::read(node.target.join("late")).unwrap();
        assert!(late == Pattern::new(3).bytes(0, 1 << 20), "what was written last is lost");
    }
    node.down().await;
}

/// While a workload has it: what that has written last is in no file but in memory.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_saves_removed_data_word_for_word() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [block(), mount("ext4"), mount("xfs")] {
        let create = client.create("advised").size(512 * MIB).capability(capability.clone());
        let node = client.on_node(&create.done().await, capability.clone());
        node.up().await;
        Pattern::new(1).write(&node.data_path(), DATA);
        std::fs::remove_file(pool.volume_data(&node.id)).unwrap();
        if !capability.is_block() {
            std::fs::write(node.target.join("late"), Pattern::new(3).bytes(0, 1 << 20)).unwrap();
        }
        let advice = async || {
            let found = daemon.launch().run(&["doctor"]);
            assert_eq!(found.status.code(), Some(1), "{found:?}");
            found.stdout.lines().find(|line| line.starts_with("data-missing")).unwrap().to_owned()
        };
        follow(advice).await;
        node.down().await;
        check_saved(&client, &node).await;
        assert_eq!(daemon.launch().run(&["doctor"]).status.code(), Some(0));
        client.delete(&node.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_data_is_not_taken_for_what_the_workload_writes() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [block(), mount("ext4")] {
        let node = in_use(&client, "replaced", capability.clone()).await;
        let device = device_of(&pool, &node);
        replace(&pool.volume_data(&node.id));
        Pattern::new(2).write(&node.data_path(), DATA);
        check_condition(&client, &node, &device).await;

        expect_code(client.snapshot("s", &node.id).await, Code::DataLoss);
        let clone = client.create("c").size(VOLUME).capability(capability.clone());
        expect_code(clone.from_volume(&node.id).send().await, Code::DataLoss);
        expect_code(client.expand(&node.id, 2 * VOLUME).await, Code::DataLoss);
        expect_code(node.expand(VOLUME).await, Code::DataLoss);
        assert_eq!(pool.entries("staging"), [""; 0]);
        assert_eq!(pool.entries("snapshots"), [""; 0]);
        Pattern::new(2).check(&node.data_path(), DATA);

        node.unpublish().await.unwrap();
        refused_for(node.unstage().await, &device);
        give_up(&device, &capability);
        node.unstage().await.unwrap();
        // The file that took its place is the volume's data from now on.
        assert!(!client.condition(&node.id).await.unwrap().abnormal);
        node.up().await;
        Pattern::new(1).check(&node.data_path(), DATA);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

/// Nothing has to be copied or detached then.
#[tokio::test(flavor = "multi_thread")]
async fn data_that_is_moved_back_is_the_volumes_again() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = in_use(&client, "moved", block()).await;
    let (data, device) = (pool.volume_data(&node.id), device_of(&pool, &node));
    let away = data.with_extension("away");
    std::fs::rename(&data, &away).unwrap();
    node.unpublish().await.unwrap();
    refused_for(node.unstage().await, &device);
    std::fs::rename(&away, &data).unwrap();
    assert!(!client.condition(&node.id).await.unwrap().abnormal);
    node.unstage().await.unwrap();
    node.up().await;
    Pattern::new(1).check(&node.data_path(), DATA);
    node.down().await;
    client.delete(&node.id).await.unwrap();
}
