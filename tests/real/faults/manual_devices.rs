//! A loop device that root attaches by hand to the data of a volume.

use std::path::{Path, PathBuf};

use orlop_sys::tool;
use orlop_tests::*;

use crate::faults::run;

const VOLUME: u64 = 64 * MIB;
const DATA: u64 = 4 * MIB;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Detached when it is dropped, also by a test that fails: no path says of which test it is.
struct ByHand(PathBuf);

impl ByHand {
    /// By a program that prints what losetup does.
    fn by(program: &str, words: &[&str]) -> Self {
        let ran = tool::run(program, words).unwrap();
        Self(PathBuf::from(String::from_utf8(ran.stdout).unwrap().trim()))
    }

    fn attach(data: &Path) -> Self {
        Self::by("losetup", &["--find", "--show", text(data)])
    }

    fn attach_read_only(data: &Path) -> Self {
        Self::by("losetup", &["--find", "--show", "--read-only", text(data)])
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = tool::run("losetup", ["--detach", text(&self.0)]);
        } else {
            detach_by_hand(&self.0);
        }
    }
}

/// As in a container that has the pool at another path, and that is gone by now.
fn in_another_namespace(pool: &TestPool, id: &str) -> ByHand {
    let script = "mount -t tmpfs tmpfs /mnt && mkdir /mnt/there && mount --bind \"$1\" /mnt/there && \
        losetup --find --show \"/mnt/there/volumes/$2/data\"";
    let words = ["--mount", "--propagation", "private", "sh", "-c", script, "sh"];
    ByHand::by("unshare", &[&words[..], &[text(&pool.path), id]].concat())
}

#[track_caller]
fn refused_for<T>(answer: Answer<T>, device: &ByHand) {
    let refused = expect_code(answer, Code::FailedPrecondition);
    let mends = format!("'losetup --detach {}'", device.0.display());
    assert!(refused.message().contains(&mends), "{}", refused.message());
}

async fn used_before(client: &Client, name: &str, capability: v1::VolumeCapability) -> OnNode {
    let create = client.create(name).size(VOLUME).capability(capability.clone());
    let node = client.on_node(&create.done().await, capability);
    node.up().await;
    Pattern::new(1).write(&node.data_path(), DATA);
    node.down().await;
    node
}

/// And serves again as soon as the device is gone.
async fn check_use(client: &Client, node: &OnNode) {
    node.up().await;
    Pattern::new(1).check(&node.data_path(), DATA);
    node.down().await;
    client.delete(&node.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn manually_mounted_volume_is_not_mounted_twice() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = used_before(&client, "v", mount("ext4")).await;
    let device = ByHand::attach(&pool.volume_data(&node.id));
    let point = pool.scratch().ensure_dir("by-hand");
    run("mount", &[text(&device.0), text(&point)]);
    Pattern::new(2).write(&point.join("theirs"), DATA);

    refused_for(node.stage().await, &device);
    refused_for(client.delete(&node.id).await, &device);
    refused_for(client.snapshot("s", &node.id).await, &device);
    refused_for(
        client.create("c").size(VOLUME).fs("ext4").from_volume(&node.id).send().await,
        &device,
    );
    assert_eq!(pool.entries("staging"), [""; 0]);
    assert_eq!(pool.entries("snapshots"), [""; 0]);
    assert_eq!(pool.entries("volumes"), std::slice::from_ref(&node.id));
    Pattern::new(1).check(&point.join("data"), DATA);
    Pattern::new(2).check(&point.join("theirs"), DATA);

    run("umount", &[text(&point)]);
    drop(device);
    node.up().await;
    Pattern::new(2).check(&node.target.join("theirs"), DATA);
    node.down().await;
    client.snapshot("s", &node.id).await.unwrap();
    check_use(&client, &node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_device_in_another_namespace_is_found() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = used_before(&client, "v", block()).await;
    for begun_before_the_daemon in [false, true] {
        let device = in_another_namespace(&pool, &node.id);
        if begun_before_the_daemon {
            daemon.restart().await;
        }
        refused_for(node.stage().await, &device);
        refused_for(client.delete(&node.id).await, &device);
    }
    check_use(&client, &node).await;
}

/// Beside a writer it would show stale blocks; beside readers and copies it does no harm.
#[tokio::test(flavor = "multi_thread")]
async fn manual_read_only_device_blocks_only_writers() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let capability = block().mode(Mode::MultiNodeReaderOnly);
    let create = client.create("v").size(VOLUME);
    let created = create.capabilities(vec![block(), capability.clone()]).done().await;
    let node = client.on_node(&created, block());
    let reader = node.with_capability(capability);
    node.up().await;
    Pattern::new(1).write(&node.data_path(), DATA);
    node.down().await;
    let device = ByHand::attach_read_only(&pool.volume_data(&node.id));

    refused_for(node.stage().await, &device);
    refused_for(client.delete(&node.id).await, &device);
    reader.up().await;
    Pattern::new(1).check(&reader.data_path(), DATA);
    reader.down().await;
    client.snapshot("s", &node.id).await.unwrap();
    Pattern::new(1).check(&device.0, DATA);
    drop(device);
    check_use(&client, &node).await;
}

/// Who has a file of another user open is shown only to a process with CAP_LEASE.
#[tokio::test(flavor = "multi_thread")]
async fn data_that_belongs_to_another_user_is_looked_at_too() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = used_before(&client, "v", block()).await;
    let data = pool.volume_data(&node.id);
    std::os::unix::fs::chown(&data, Some(1000), Some(1000)).unwrap();
    let other_name = pool.path.join("other-name");
    std::fs::hard_link(&data, &other_name).unwrap();
    let device = ByHand::attach(&other_name);
    refused_for(node.stage().await, &device);
    refused_for(client.delete(&node.id).await, &device);
    drop(device);
    let program = std::fs::OpenOptions::new().append(true).open(&data).unwrap();
    let refused = expect_code(client.delete(&node.id).await, Code::FailedPrecondition);
    assert!(refused.message().contains("is being written to"), "{}", refused.message());
    drop(program);
    check_use(&client, &node).await;
    std::fs::remove_file(other_name).unwrap();
}

/// As on NFS and SMB: that a lease is refused says nothing there.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_where_leases_tell_nothing_is_served() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let confined = [env!("CARGO_BIN_EXE_confined"), "--without-leases"];
    let daemon = Launch::on(&pool).run_by(&confined).start().await;
    let client = daemon.client();
    let node = used_before(&client, "v", mount("ext4")).await;
    let snapshot = client.snapshot("s", &node.id).await.unwrap().snapshot_id;
    client.create("c").size(VOLUME).fs("ext4").from_snapshot(&snapshot).done().await;
    // Devices are still seen, by whatever name they were attached.
    let other_name = pool.path.join("other-name");
    std::fs::hard_link(pool.volume_data(&node.id), &other_name).unwrap();
    let device = ByHand::attach(&other_name);
    refused_for(node.stage().await, &device);
    drop(device);
    std::fs::remove_file(other_name).unwrap();
    check_use(&client, &node).await;
    let log = daemon.launch().log();
    let warnings = log.matches("this filesystem does not report which files are open").count();
    assert_eq!(warnings, 1, "{log}");
}
