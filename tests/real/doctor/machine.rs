//! What can be wrong on the machine: devices, mounts, freezes, limits, records.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_sys::loopdev::{self, AttachOptions, LoopDevice};
use orlop_sys::mounts;
use orlop_tests::*;

use crate::patient::{Patient, doctor};

const PATIENCE: Duration = Duration::from_secs(60);

fn attached(patient: &Patient, id: &str) -> LoopDevice {
    let options = AttachOptions { label: id, read_only: false, size: 16 * MIB };
    loopdev::attach(&patient.pool.volume_data(id), &options).unwrap()
}

/// Somebody else may have the device by now.
fn is_attached(device: &LoopDevice, id: &str) -> bool {
    loopdev::status(device).unwrap().is_some_and(|status| status.label == id)
}

fn in_run_dir(patient: &Patient, name: &str) -> PathBuf {
    patient.pool.scratch().join("run/csi.orlop.io").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_nobody_asked_for_is_detached() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let device = attached(&patient, &id);
    patient.cure("stray-device");
    assert!(!is_attached(&device, &id));
    Pattern::new(7).check(&patient.pool.volume_data(&id), MIB);
}

/// It is for the person who attached it to decide.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_was_attached_by_hand_is_named() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let id = patient.block_volume("a").await;
    let options = AttachOptions { label: "by hand", read_only: false, size: 16 * MIB };
    let device = loopdev::attach(&patient.pool.volume_data(&id), &options).unwrap();
    for is_served in [true, false] {
        if !is_served {
            patient.daemon.terminate();
        }
        patient.incurable("foreign-device");
        let report = patient.doctor(&[]);
        for told in [id.clone(), format!("losetup --detach {}", device.path().display())] {
            assert!(report.text.contains(&told), "{}", report.text);
        }
        assert!(is_attached(&device, "by hand"));
    }
    loopdev::ensure_detached(&device, "by hand").unwrap();
    patient.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_of_a_volume_that_is_gone_is_detached() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let device = attached(&patient, &id);
    // As a deletion does it, which is interrupted then.
    fs::rename(patient.home(&id), patient.pool.path.join("trash").join(format!("{id}.0"))).unwrap();
    let both = [("leftover", "repaired"), ("stale-device", "repaired")];
    patient.doctor(&["--repair"]).expect(0, &both);
    assert!(!is_attached(&device, &id));
    patient.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_copy_of_lost_data_is_not_let_go() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let device = attached(&patient, &id);
    let data = patient.pool.volume_data(&id);
    fs::remove_file(&data).unwrap();
    let both = [("data-missing", "by-hand"), ("stale-device", "by-hand")];
    patient.doctor(&["--repair"]).expect(1, &both);
    assert!(is_attached(&device, &id));
    patient.daemon.restart().await;
    patient.daemon.terminate();
    // The whole volume, as by rm -rf.
    orlop_sys::file::remove_tree(&patient.home(&id)).unwrap();
    patient.incurable("stale-device");
    patient.daemon.restart().await;
    patient.daemon.terminate();
    assert!(is_attached(&device, &id));
    Pattern::new(7).check(&device.path(), MIB);
    loopdev::ensure_detached(&device, &id).unwrap();
    patient.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_without_a_record_is_taken_away_unless_it_is_busy() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let volume = patient.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = patient.client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), MIB);
    patient.daemon.terminate();
    patient.doctor(&["--repair"]).expect(0, &[]);
    fs::remove_file(in_run_dir(&patient, "volumes").join(format!("{}.json", node.id))).unwrap();

    let busy = fs::File::open(node.data_path()).unwrap();
    patient.doctor(&["--repair"]).expect(1, &[("forgotten-mount", "failed")]);
    drop(busy);
    patient.cure("forgotten-mount");
    assert!(mounts::mount_at(&node.target).unwrap().is_none());
    assert!(mounts::mount_at(&node.staging).unwrap().is_none());
    fs::remove_dir(&node.target).unwrap();

    patient.daemon.restart().await;
    node.up().await;
    Pattern::new(3).check(&node.data_path(), MIB);
    node.down().await;
}

/// A process that sees the mount may use it. A namespace without one keeps the device all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_without_processes_keeps_no_forgotten_mount() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let volume = patient.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = patient.client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), MIB);
    patient.daemon.terminate();
    fs::remove_file(in_run_dir(&patient, "volumes").join(format!("{}.json", node.id))).unwrap();

    let keeper = Keeper::of(&[&node.staging, &node.target]);
    let namespace = keeper.namespace();
    patient.incurable("forgotten-mount");
    assert_eq!(keeper.mounts_at(&node.staging), 2, "what a process sees is left to it");
    drop(keeper);
    patient.cure("forgotten-mount");
    assert_eq!(patient.daemon.leaks(), [""; 0]);
    drop(namespace);
    fs::remove_dir(&node.target).unwrap();

    patient.daemon.restart().await;
    node.up().await;
    Pattern::new(3).check(&node.data_path(), MIB);
    node.down().await;
}

/// Where the daemon's records are not, nothing has one.
#[tokio::test(flavor = "multi_thread")]
async fn in_another_run_directory_nothing_is_forgotten() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let volume = patient.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = patient.client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), MIB);
    let id = patient.block_volume("a").await;
    patient.daemon.terminate();
    let device = attached(&patient, &id);
    let launch = patient.daemon.launch();
    // The one is not there, the other is that of some other daemon.
    let absent = launch.clone().env("ORLOP_RUN_DIR", patient.pool.scratch().join("other-run"));
    let stranger = launch.clone().env("ORLOP_DRIVER_NAME", "csi.example.com");
    patient.pool.scratch().ensure_dir("run/csi.example.com/volumes");
    for mistaken in [absent, stranger] {
        let mut report = doctor(&mistaken, &["--repair"]);
        report.findings.sort();
        report.expect(1, &[("forgotten-mount", "by-hand"), ("stray-device", "by-hand")]);
        assert!(report.text.contains("ORLOP_RUN_DIR"), "{}", report.text);
    }
    Pattern::new(3).check(&node.data_path(), MIB);
    assert!(is_attached(&device, &id));
    patient.cure("stray-device");
    patient.daemon.restart().await;
    node.down().await;
}

/// The records are in the run directory of the last daemon, however often the other one was used.
#[tokio::test(flavor = "multi_thread")]
async fn the_former_run_directory_forgets_nothing_of_the_last() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let volume = |name: &str| patient.client.create(name).size(64 * MIB).fs("ext4").done();
    let former = patient.client.on_node(&volume("former").await, mount("ext4"));
    let last = patient.client.on_node(&volume("last").await, mount("ext4"));
    // Until the end: each of them fails the test if something is in use when it is dropped.
    let mut others = Vec::new();
    for in_use_before in [false, true] {
        patient.daemon.terminate();
        let other = patient.pool.scratch().join(format!("other-run-{in_use_before}"));
        let mut daemon = patient.daemon.launch().clone().env("ORLOP_RUN_DIR", other).start().await;
        patient.client.reconnect();
        last.up().await;
        Pattern::new(3).write(&last.data_path(), MIB);
        daemon.terminate();

        let report = patient.doctor(&["--repair"]);
        report.expect(1, &[("forgotten-mount", "by-hand")]);
        assert!(report.text.contains(&last.id), "{}", report.text);
        Pattern::new(3).check(&last.data_path(), MIB);
        daemon.restart().await;
        last.down().await;
        daemon.terminate();
        others.push(daemon);
        patient.daemon.restart().await;
        // What is forgotten under the run directory of the last daemon is repaired all the same.
        former.up().await;
        if in_use_before {
            patient.daemon.terminate();
            let record = in_run_dir(&patient, "volumes").join(format!("{}.json", former.id));
            fs::remove_file(record).unwrap();
            patient.cure("forgotten-mount");
            fs::remove_dir(&former.target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_mounted_of_a_volume_that_is_gone_stays() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let volume = patient.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = patient.client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(3).write(&node.data_path(), MIB);
    patient.daemon.terminate();
    orlop_sys::file::remove_tree(&patient.home(&node.id)).unwrap();
    let both = [("stale-device", "by-hand"), ("stale-node-record", "by-hand")];
    patient.doctor(&["--repair"]).expect(1, &both);
    Pattern::new(3).check(&node.data_path(), MIB);

    mounts::ensure_unmounted(&node.target).unwrap();
    mounts::ensure_unmounted(&node.staging).unwrap();
    let both = [("stale-device", "by-hand"), ("stale-node-record", "repaired")];
    patient.doctor(&["--repair"]).expect(1, &both);
    let device = loopdev::attached(|_| false).unwrap().into_iter().find(|it| it.label == node.id);
    loopdev::ensure_detached(&device.unwrap().device, &node.id).unwrap();
    patient.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filesystem_that_was_left_frozen_is_thawed() {
    needs_root!();
    let mut patient = Patient::new(PoolFs::Xfs).await;
    let volume = patient.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = patient.client.on_node(&volume, mount("ext4"));
    node.up().await;
    patient.daemon.terminate();
    // As a daemon leaves it whose thaw helper is killed together with it.
    let freeze = NotedFreeze::begin(patient.daemon.launch(), &node.staging);

    patient.doctor(&[]).expect(1, &[("frozen", "repairable")]);
    assert!(freeze.lasts(), "a look does not thaw");
    patient.doctor(&["--repair"]).expect(0, &[("frozen", "repaired")]);
    patient.doctor(&[]).expect(0, &[]);
    assert!(!freeze.is_noted());
    Pattern::new(3).write(&node.data_path(), MIB);
    patient.daemon.restart().await;
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
    let mut patient = Patient { pool, daemon, client };
    let create = patient.client.create("v").size(16 * MIB).block();
    let volume = create.mutable_parameter("writeIops", "300").done().await;
    let node = patient.client.on_node(&volume, block());
    node.up().await;
    let device = device_at(&node);
    assert_eq!(group.limits_of(device), [("writeIops", 300)]);
    patient.daemon.terminate();
    // As after a crash in the middle of unstaging, with the record gone as well.
    mounts::ensure_unmounted(&node.target).unwrap();
    fs::remove_file(in_run_dir(&patient, "volumes").join(format!("{}.json", node.id))).unwrap();
    patient.doctor(&["--repair"]).expect(0, &[("stray-device", "repaired")]);
    // Meanwhile the number may be that of another test's device, whose limit it would be.
    let deadline = Instant::now() + PATIENCE;
    while patient.doctor(&[]).findings.is_empty() {
        assert!(Instant::now() < deadline, "a limit of no device is not found");
    }
    while !group.limits_of(device).is_empty() {
        let report = patient.doctor(&["--repair"]);
        assert!(Instant::now() < deadline, "{}", report.text);
    }
    fs::remove_file(&node.target).unwrap();
}
