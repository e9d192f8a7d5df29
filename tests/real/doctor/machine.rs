//! What can be wrong on the machine: devices, mounts, freezes, limits, records.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_sys::loopdev::{self, AttachOptions, LoopDevice};
use orlop_sys::{mounts, tool};
use orlop_tests::*;

use crate::doctor::fixture::Fixture;

const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn attached(fixture: &Fixture, id: &str) -> LoopDevice {
    let options = AttachOptions { label: id, read_only: false, size: 16 * MIB };
    loopdev::attach(&fixture.pool.volume_data(id), &options).unwrap()
}

/// Another process may have the device by now.
pub(super) fn is_attached(device: &LoopDevice, id: &str) -> bool {
    loopdev::status(device).unwrap().is_some_and(|status| status.label == id)
}

pub(super) fn in_run_dir(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.pool.scratch().join("run/csi.orlop.io").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn device_without_a_record_is_detached() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let device = attached(&fixture, &id);
    fixture.repair("stray-device");
    assert!(!is_attached(&device, &id));
    Pattern::new(7).check(&fixture.pool.volume_data(&id), MIB);
}

/// It is for the person who attached it to decide.
#[tokio::test(flavor = "multi_thread")]
async fn manually_attached_device_is_reported() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    let options = AttachOptions { label: "by hand", read_only: false, size: 16 * MIB };
    let device = loopdev::attach(&fixture.pool.volume_data(&id), &options).unwrap();
    for is_served in [true, false] {
        if !is_served {
            fixture.daemon.terminate();
        }
        fixture.not_repairable("foreign-device");
        let report = fixture.doctor(&[]);
        for expected in [id.clone(), format!("losetup --detach {}", device.path().display())] {
            assert!(report.text.contains(&expected), "{}", report.text);
        }
        assert!(is_attached(&device, "by hand"));
    }
    loopdev::ensure_detached(&device, "by hand").unwrap();
    fixture.doctor(&[]).expect(0, &[]);
}

/// Both keep volumes from being restored, or from being used.
#[tokio::test(flavor = "multi_thread")]
async fn uses_of_snapshots_and_writers_are_named() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    let snapshot = fixture.client.snapshot("s", &id).await.unwrap().snapshot_id;
    let snapshot_data = fixture.pool.path.join("snapshots").join(&snapshot).join("data");
    for is_served in [true, false] {
        if !is_served {
            fixture.daemon.terminate();
        }
        for read_only in [false, true] {
            let options = AttachOptions { label: "by hand", read_only, size: 16 * MIB };
            let device = loopdev::attach(&snapshot_data, &options).unwrap();
            fixture.not_repairable("foreign-device");
            let report = fixture.doctor(&[]);
            for expected in [&snapshot, &format!("losetup --detach {}", device.path().display())] {
                assert!(report.text.contains(expected), "{}", report.text);
            }
            loopdev::ensure_detached(&device, "by hand").unwrap();
        }
        for (object, data) in [(&id, &fixture.pool.volume_data(&id)), (&snapshot, &snapshot_data)] {
            let program = fs::OpenOptions::new().append(true).open(data).unwrap();
            fixture.not_repairable("foreign-writer");
            let report = fixture.doctor(&[]);
            for expected in [object, &format!("process {} ", std::process::id())] {
                assert!(report.text.contains(expected), "{}", report.text);
            }
            drop(program);
        }
    }
    fixture.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn device_of_a_deleted_volume_is_detached() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let device = attached(&fixture, &id);
    // As a deletion does it, which is interrupted then.
    fs::rename(fixture.home(&id), fixture.pool.path.join("trash").join(format!("{id}.0"))).unwrap();
    let both = [("leftover", "repaired"), ("stale-device", "repaired")];
    fixture.doctor(&["--repair"]).expect(0, &both);
    assert!(!is_attached(&device, &id));
    fixture.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn device_with_the_only_copy_is_kept() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    let device = attached(&fixture, &id);
    let data = fixture.pool.volume_data(&id);
    fs::remove_file(&data).unwrap();
    let both = [("data-missing", "by-hand"), ("stale-device", "by-hand")];
    fixture.doctor(&["--repair"]).expect(1, &both);
    assert!(is_attached(&device, &id));
    fixture.daemon.restart().await;
    fixture.daemon.terminate();
    // The whole volume, as by rm -rf.
    orlop_sys::file::remove_tree(&fixture.home(&id)).unwrap();
    fixture.not_repairable("stale-device");
    fixture.daemon.restart().await;
    fixture.daemon.terminate();
    assert!(is_attached(&device, &id));
    Pattern::new(7).check(&device.path(), MIB);
    loopdev::ensure_detached(&device, &id).unwrap();
    fixture.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_without_a_record_is_removed_unless_busy() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), MIB);
    fixture.daemon.terminate();
    fixture.doctor(&["--repair"]).expect(0, &[]);
    fs::remove_file(in_run_dir(&fixture, "volumes").join(format!("{}.json", node.id))).unwrap();

    let busy = fs::File::open(node.data_path()).unwrap();
    fixture.doctor(&["--repair"]).expect(1, &[("forgotten-mount", "failed")]);
    drop(busy);
    fixture.repair("forgotten-mount");
    assert!(mounts::mount_at(&node.target).unwrap().is_none());
    assert!(mounts::mount_at(&node.staging).unwrap().is_none());
    fs::remove_dir(&node.target).unwrap();

    fixture.daemon.restart().await;
    node.up().await;
    Pattern::new(3).check(&node.data_path(), MIB);
    node.down().await;
}

/// A process that sees the mount may use it. A namespace without one keeps the device all the same.
#[tokio::test(flavor = "multi_thread")]
async fn empty_mount_namespace_does_not_keep_a_mount() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), MIB);
    fixture.daemon.terminate();
    fs::remove_file(in_run_dir(&fixture, "volumes").join(format!("{}.json", node.id))).unwrap();

    let holder = MountHolder::of(&[&node.staging, &node.target]);
    let namespace = holder.namespace();
    fixture.not_repairable("forgotten-mount");
    assert_eq!(holder.mounts_at(&node.staging), 2, "what a process sees is left to it");
    drop(holder);
    fixture.repair("forgotten-mount");
    assert_eq!(fixture.daemon.leaks(), [""; 0]);
    drop(namespace);
    fs::remove_dir(&node.target).unwrap();

    fixture.daemon.restart().await;
    node.up().await;
    Pattern::new(3).check(&node.data_path(), MIB);
    node.down().await;
}

/// There need not be another run directory: this one may have been removed.
#[tokio::test(flavor = "multi_thread")]
async fn lost_run_directory_is_reported_with_what_helps() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("m").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    fixture.daemon.kill9();
    let run_dir = fixture.pool.scratch().join("run/csi.orlop.io");
    tool::run("rm", ["-r", run_dir.to_str().unwrap()]).unwrap();
    let helps = "stage and publish the volume again with the same arguments";
    let report = fixture.doctor(&[]);
    report.expect(1, &[("forgotten-mount", "by-hand")]);
    assert!(report.text.contains(helps), "{}", report.text);
    fixture.daemon.restart().await;
    assert!(fixture.daemon.has_logged(helps), "{}", fixture.daemon.log_end());
    node.up().await;
    fixture.doctor(&[]).expect(0, &[]);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_of_a_deleted_volume_is_kept() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), MIB);
    fixture.daemon.terminate();
    orlop_sys::file::remove_tree(&fixture.home(&node.id)).unwrap();
    let both = [("stale-device", "by-hand"), ("stale-node-record", "by-hand")];
    fixture.doctor(&["--repair"]).expect(1, &both);
    Pattern::new(3).check(&node.data_path(), MIB);

    mounts::ensure_unmounted(&node.target).unwrap();
    mounts::ensure_unmounted(&node.staging).unwrap();
    let both = [("stale-device", "by-hand"), ("stale-node-record", "repaired")];
    fixture.doctor(&["--repair"]).expect(1, &both);
    let device = loopdev::attached(|_| false).unwrap().into_iter().find(|it| it.label == node.id);
    loopdev::ensure_detached(&device.unwrap().device, &node.id).unwrap();
    fixture.doctor(&[]).expect(0, &[]);
}

/// A path that cannot be looked at proves nothing: only one that is missing is free, and only a volume that is
/// missing is gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_looked_at_is_not_taken_for_gone() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    fixture.daemon.terminate();
    let (home, aside) = (fixture.home(&node.id), fixture.pool.path.join("aside"));
    std::fs::rename(&home, &aside).unwrap();
    std::os::unix::fs::symlink(&home, &home).unwrap();
    let report = fixture.doctor(&["--repair"]);
    let says = |code: &str| report.findings.iter().any(|(found, _)| found == code);
    assert!(!says("stale-node-record"), "{}", report.text);
    std::fs::remove_file(&home).unwrap();

    // The volume is gone, and one place of it leads nowhere.
    mounts::ensure_unmounted(&node.target).unwrap();
    mounts::ensure_unmounted(&node.staging).unwrap();
    let staging = node.staging.parent().unwrap();
    let moved = staging.with_extension("moved");
    std::fs::rename(staging, &moved).unwrap();
    std::os::unix::fs::symlink(staging, staging).unwrap();
    let report = fixture.doctor(&["--repair"]);
    let record = report.findings.iter().find(|(code, _)| code == "stale-node-record");
    assert_eq!(record.unwrap().1, "by-hand", "{}", report.text);
    std::fs::remove_file(staging).unwrap();
    std::fs::rename(&moved, staging).unwrap();
    std::fs::rename(&aside, &home).unwrap();
    fixture.daemon.restart().await;
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_freeze_is_thawed() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    fixture.daemon.terminate();
    // As a daemon leaves it whose guard is killed together with it.
    let freeze = RecordedFreeze::begin(fixture.daemon.launch(), &node.staging);

    fixture.doctor(&[]).expect(1, &[("frozen", "repairable")]);
    assert!(freeze.lasts(), "a look does not thaw");
    fixture.doctor(&["--repair"]).expect(0, &[("frozen", "repaired")]);
    fixture.doctor(&[]).expect(0, &[]);
    assert!(!freeze.is_recorded());
    Pattern::new(3).write(&node.data_path(), MIB);
    fixture.daemon.restart().await;
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_device_that_is_gone_are_lifted() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let group = Cgroup::new();
    let launch = Launch::on(&pool).env("ORLOP_WORKLOAD_CGROUP", &group.name);
    let daemon = launch.start().await;
    let client = daemon.client();
    let mut fixture = Fixture { pool, daemon, client };
    let create = fixture.client.create("v").size(16 * MIB).block();
    let volume = create.mutable_parameter("writeIops", "300").done().await;
    let node = fixture.client.on_node(&volume, block());
    node.up().await;
    let device = device_at(&node);
    assert_eq!(group.limits_of(device), [("writeIops", 300)]);
    fixture.daemon.terminate();
    // As after a crash in the middle of unstaging, with the record gone as well.
    mounts::ensure_unmounted(&node.target).unwrap();
    fs::remove_file(in_run_dir(&fixture, "volumes").join(format!("{}.json", node.id))).unwrap();
    fixture.doctor(&["--repair"]).expect(0, &[("stray-device", "repaired")]);
    // By now the number may be that of another test's device, whose limit it would be.
    let deadline = Instant::now() + TIMEOUT;
    while fixture.doctor(&[]).findings.is_empty() {
        assert!(Instant::now() < deadline, "a limit of no device is not found");
    }
    while !group.limits_of(device).is_empty() {
        let report = fixture.doctor(&["--repair"]);
        assert!(Instant::now() < deadline, "{}", report.text);
    }
    fs::remove_file(&node.target).unwrap();
}
