//! The data of a volume in use is moved out of the pool, or the whole pool is replaced by a copy, and the
//! daemon starts again. The workload goes on in the file that was moved, which has a name; a copy of the
//! pool that another daemon serves has such files, too.

use std::fs;
use std::path::{Path, PathBuf};

use orlop_sys::mounts::{self, BindAccess};
use orlop_sys::tool;
use orlop_tests::*;

use super::flush;

const VOLUME: u64 = 64 * MIB;
const DATA: u64 = 4 * MIB;

fn copy(from: &Path, to: &Path) {
    let words = ["-a", "--sparse=always", from.to_str().unwrap(), to.to_str().unwrap()];
    tool::run("cp", words).unwrap();
}

async fn in_use(client: &Client, name: &str, capability: v1::VolumeCapability) -> OnNode {
    let create = client.create(name).size(VOLUME).capability(capability.clone());
    let node = client.on_node(&create.done().await, capability);
    node.up().await;
    write(&node, 1);
    node
}

fn write(node: &OnNode, seed: u64) {
    Pattern::new(seed).write(&node.data_path(), DATA);
    flush(&node.data_path());
}

fn device_of(pool: &TestPool, node: &OnNode) -> PathBuf {
    orlop_sys::loopdev::find(&pool.volume_data(&node.id), false).unwrap().unwrap().path()
}

/// As by the daemon under which the data was moved.
async fn check_lost(client: &Client, launch: &Launch, node: &OnNode, device: &Path) {
    let condition = client.condition(&node.id).await.unwrap();
    assert!(condition.abnormal && condition.message.contains(device.to_str().unwrap()));
    expect_code(client.snapshot("s", &node.id).await, Code::DataLoss);
    let clone = client.create("c").size(VOLUME).capability(node.capability.clone());
    expect_code(clone.from_volume(&node.id).send().await, Code::DataLoss);
    expect_code(client.expand(&node.id, 2 * VOLUME).await, Code::DataLoss);
    expect_code(node.expand(VOLUME).await, Code::DataLoss);
    expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
    let elsewhere = client.scratch().ensure_dir("elsewhere");
    let staging_target_path = elsewhere.to_str().unwrap().to_owned();
    let stage = v1::NodeStageVolumeRequest { staging_target_path, ..node.stage_request() };
    expect_code(client.node_stage(stage).await, Code::FailedPrecondition);
    let doctor = launch.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
    let has = |text: &str| doctor.stdout.contains(text);
    assert!(has("stale-device") && has(&node.id) && has(device.to_str().unwrap()), "{doctor:?}");
    Pattern::new(2).check(&node.data_path(), DATA);
}

async fn refused_unstage(node: &OnNode, device: &Path) {
    node.unpublish().await.unwrap();
    let refused = expect_code(node.unstage().await, Code::FailedPrecondition);
    let text = refused.message();
    assert!(text.contains(&format!("dd if={} ", device.display())), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_data_is_known_after_a_restart() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [block(), mount("ext4")] {
        let node = in_use(&client, "moved", capability).await;
        let (data, away) = (pool.volume_data(&node.id), pool.scratch().join("data.old"));
        let device = device_of(&pool, &node);
        let restored = pool.scratch().join("data.new");
        copy(&data, &restored);
        write(&node, 2);
        fs::rename(&data, &away).unwrap();
        fs::rename(&restored, &data).unwrap();
        for _ in 0..2 {
            daemon.restart().await;
            check_lost(&client, daemon.launch(), &node, &device).await;
        }
        refused_unstage(&node, &device).await;
        // A raw volume is mounted nowhere then.
        daemon.restart().await;
        expect_code(node.unstage().await, Code::FailedPrecondition);
        expect_code(client.snapshot("s", &node.id).await, Code::DataLoss);
        fs::rename(&away, &data).unwrap();
        node.up().await;
        Pattern::new(2).check(&node.data_path(), DATA);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    daemon.terminate();
    assert_eq!(daemon.leaks(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn repair_keeps_the_record_of_moved_data() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = in_use(&client, "moved", mount("ext4")).await;
    daemon.terminate();
    let (data, away) = (pool.volume_data(&node.id), pool.scratch().join("data.old"));
    fs::rename(&data, &away).unwrap();
    let doctor = daemon.launch().run(&["doctor", "--repair"]);
    assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
    fs::rename(&away, &data).expect("the volume's directory is where it was");
    daemon.restart().await;
    Pattern::new(1).check(&node.data_path(), DATA);
    node.down().await;
    client.delete(&node.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_replaced_by_a_copy_is_not_taken_for_it() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mut used = Vec::new();
    for (name, capability) in [("raw", block()), ("mounted", mount("ext4"))] {
        let node = in_use(&client, name, capability).await;
        let device = device_of(&pool, &node);
        used.push((node, device));
    }
    let [old, backup] = ["old", "backup"].map(|name| pool.scratch().join(name));
    copy(&pool.path, &backup);
    // Of this one the copy knows nothing.
    let newer = in_use(&client, "newer", mount("ext4")).await;
    let newer_device = device_of(&pool, &newer);
    used.iter().for_each(|(node, _)| write(node, 2));
    daemon.terminate();
    fs::rename(&pool.path, &old).unwrap();
    copy(&backup, &pool.path);
    daemon.restart().await;
    for (node, device) in &used {
        check_lost(&client, daemon.launch(), node, device).await;
        refused_unstage(node, device).await;
    }
    refused_unstage(&newer, &newer_device).await;
    daemon.terminate();
    fs::rename(&pool.path, pool.scratch().join("restored")).unwrap();
    fs::rename(&old, &pool.path).unwrap();
    daemon.restart().await;
    for (node, seed) in used.iter().map(|(node, _)| (node, 2)).chain([(&newer, 1)]) {
        node.up().await;
        Pattern::new(seed).check(&node.data_path(), DATA);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    daemon.terminate();
    assert_eq!(daemon.leaks(), [""; 0]);
}

/// The old disk may be dead, so its volumes can be detached; until then they are not taken for those of the new disk.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_an_exchanged_disk_are_not_copied() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let new = pool.beside("new", PoolFs::Xfs, 2 * GIB);
    let launch = Launch::on(&pool).with_fixtures(new.fixtures());
    let mut daemon = launch.start().await;
    let client = daemon.client();
    for capability in [block(), mount("ext4")] {
        let node = in_use(&client, "exchanged", capability).await;
        let device = device_of(&pool, &node);
        copy(&pool.path.join("."), &new.path);
        write(&node, 2);
        daemon.terminate();
        tool::run("umount", ["--lazy", pool.path.to_str().unwrap()]).unwrap();
        mounts::bind(&new.path, &pool.path, BindAccess::ReadWrite).unwrap();
        daemon.restart().await;
        check_lost(&client, daemon.launch(), &node, &device).await;
        node.down().await;
        node.up().await;
        Pattern::new(1).check(&node.data_path(), DATA);
        node.down().await;
        client.delete(&node.id).await.unwrap();
        daemon.terminate();
        mounts::ensure_unmounted(&pool.path).unwrap();
        pool.unplug();
        pool.power_on();
        daemon.restart().await;
        client.delete(&node.id).await.unwrap();
    }
}

/// Both have the same ids, and neither is disturbed.
#[tokio::test(flavor = "multi_thread")]
async fn copy_served_by_another_daemon_is_not_mistaken() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volumes = [("raw", block()), ("mounted", mount("ext4"))];
    let mut nodes = Vec::new();
    for (name, capability) in volumes {
        let node = in_use(&client, name, capability).await;
        node.down().await;
        nodes.push(node);
    }
    daemon.terminate();
    let twin = pool.scratch().join("twin");
    copy(&pool.path, &twin);
    let run = pool.scratch().ensure_dir("twin-run");
    let twin = Launch::on(&pool)
        .env("ORLOP_POOL", &twin)
        .env("ORLOP_RUN_DIR", &run)
        .env("CSI_ENDPOINT", format!("unix://{}", run.join("csi.sock").display()));
    let mut twin = twin.start().await;
    let other = twin.client();
    for node in &nodes {
        let volume = v1::Volume { volume_id: node.id.clone(), ..v1::Volume::default() };
        let mut beside = other.on_node(&volume, node.capability.clone());
        beside.staging = pool.scratch().ensure_dir(format!("beside {}", node.id));
        beside.target = other.new_target(&format!("beside {}", node.id));
        beside.up().await;
        write(&beside, 2);
        daemon.restart().await;
        twin.restart().await;
        let doctor = daemon.launch().run(&["doctor"]);
        assert_eq!(doctor.status.code(), Some(0), "{doctor:?}");
        node.up().await;
        daemon.restart().await;
        Pattern::new(1).check(&node.data_path(), DATA);
        client.snapshot(&format!("of {}", node.id), &node.id).await.unwrap();
        node.down().await;
        client.delete(&node.id).await.unwrap();
        Pattern::new(2).check(&beside.data_path(), DATA);
        beside.down().await;
    }
    daemon.terminate();
    twin.terminate();
    assert_eq!(daemon.leaks(), [""; 0]);
}
