//! Volumes in use of which no node record is found.

use std::fs;
use std::path::PathBuf;

use orlop_sys::loopdev::{self, LoopDevice};
use orlop_tests::*;

use crate::ceph::{VOLUME, delete, up_on};

const DATA: u64 = 8 * MIB;

/// The file that the device at the target is on.
fn file_behind(used: &OnNode) -> Option<PathBuf> {
    let (_, minor) = device_at(used);
    let device = LoopDevice::from_path(&PathBuf::from(format!("/dev/loop{minor}"))).unwrap();
    loopdev::backing(&device).unwrap().map(|there| there.file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_volume_keeps_its_device_without_a_record() {
    needs_root!();
    let ceph = TestCeph::shared();
    let mut daemon = ceph.launch("unrecorded", "all").start().await;
    let client = daemon.client();
    let volume = client.create("unrecorded raw").size(VOLUME).block().done().await;
    let used = up_on(&client, &daemon, "unrecorded", &volume, block()).await;
    Pattern::new(1).write(&used.target, DATA);
    let file = file_behind(&used);
    daemon.terminate();
    let elsewhere = daemon.launch().scratch().join("other-run");
    let mut other = daemon.launch().clone().env("ORLOP_RUN_DIR", elsewhere).start().await;
    assert_eq!(file_behind(&used), file, "another run directory");
    other.terminate();
    let records = daemon.launch().scratch().join("run/csi.orlop.io/volumes");
    fs::remove_file(records.join(format!("{}.json", used.id))).unwrap();
    daemon.restart().await;
    assert_eq!(file_behind(&used), file, "a lost record");
    Pattern::new(1).check(&used.target, DATA);

    let snapshot = client.snapshot("unrecorded raw", &used.id).await.unwrap().snapshot_id;
    client.controller_unpublish(&used.id, "unrecorded").await.unwrap();
    expect_code(client.delete(&used.id).await, Code::FailedPrecondition);
    assert_eq!(file_behind(&used), file, "a deletion that was refused");
    used.unpublish().await.unwrap();
    delete(&client, &used.id).await;
    client.delete_snapshot(&snapshot).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn writer_without_a_record_is_frozen() {
    needs_root!();
    let ceph = TestCeph::shared();
    let mut daemon = ceph.launch("unseen", "all").start().await;
    let client = daemon.client();
    let volume = client.create("unseen").size(VOLUME).fs("ext4").done().await;
    let used = up_on(&client, &daemon, "unseen", &volume, mount("ext4")).await;
    let workload = Workload::writing(&used.data_path());
    daemon.kill9();
    let records = daemon.launch().scratch().join("run/csi.orlop.io/volumes");
    fs::remove_file(records.join(format!("{}.json", used.id))).unwrap();
    daemon.restart().await;
    workload.goes_on().await;
    let snapshot = client.snapshot("unseen", &used.id).await.unwrap().snapshot_id;
    let log = daemon.log();
    assert!(log.contains("froze the writers for a snapshot"), "{log}");
    workload.goes_on().await;
    workload.finish();
    used.unpublish().await.unwrap();
    used.unstage().await.unwrap();
    client.controller_unpublish(&used.id, "unseen").await.unwrap();
    delete(&client, &used.id).await;
    client.delete_snapshot(&snapshot).await.unwrap();
}

/// Its client is noted under the same node id, and must not be taken for one that has ended.
#[tokio::test(flavor = "multi_thread")]
async fn other_run_directory_does_not_fence_a_live_writer() {
    needs_root!();
    let ceph = TestCeph::shared();
    let mut daemon = ceph.launch("elsewhere", "all").start().await;
    let client = daemon.client();
    let volume = client.create("elsewhere").size(VOLUME).fs("ext4").done().await;
    let used = up_on(&client, &daemon, "elsewhere", &volume, mount("ext4")).await;
    let raw = client.create("elsewhere raw").size(VOLUME).block().done().await;
    let raw = up_on(&client, &daemon, "elsewhere", &raw, block()).await;
    Pattern::new(1).write(&raw.target, DATA);
    let workload = Workload::writing(&used.data_path());
    daemon.terminate();
    let run = daemon.launch().scratch().join("other-run");
    // Each looks for leaks when it is dropped.
    let mut others = Vec::new();
    for (name, value) in
        [("ORLOP_RUN_DIR", run.to_str().unwrap()), ("ORLOP_DRIVER_NAME", "other.orlop.io")]
    {
        let mut other = daemon.launch().clone().env(name, value).start().await;
        let log = other.log();
        for used in [&used, &raw] {
            let logged =
                log.lines().any(|line| line.contains(&used.id) && line.contains("left alone"));
            assert!(logged, "{log}");
            let refused = used.stage().await.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            assert!(refused.message().contains("driver name csi.orlop.io"), "{refused}");
        }
        workload.goes_on().await;
        Pattern::new(2).write(&raw.target, DATA);
        other.terminate();
        others.push(other);
    }
    daemon.restart().await;
    workload.goes_on().await;
    workload.finish();
    Pattern::new(2).check(&raw.target, DATA);
    for used in [used, raw] {
        used.unpublish().await.unwrap();
        used.unstage().await.unwrap();
        client.controller_unpublish(&used.id, "elsewhere").await.unwrap();
        delete(&client, &used.id).await;
    }
}

/// After a reboot the note is all that is left of the client.
#[tokio::test(flavor = "multi_thread")]
async fn other_run_directory_takes_over_after_a_reboot() {
    needs_root!();
    let ceph = TestCeph::shared();
    let mut daemon = ceph.launch("elsewhere-after", "all").start().await;
    let client = daemon.client();
    let volume = client.create("elsewhere after").size(VOLUME).fs("ext4").done().await;
    let used = up_on(&client, &daemon, "elsewhere-after", &volume, mount("ext4")).await;
    Pattern::new(1).write(&used.data_path(), DATA);
    daemon.reboot_machine().await;
    daemon.terminate();
    let run = daemon.launch().scratch().join("other-run");
    let mut other = daemon.launch().clone().env("ORLOP_RUN_DIR", run).start().await;
    used.up().await;
    Pattern::new(1).check(&used.data_path(), DATA);
    used.down().await;
    client.controller_unpublish(&used.id, "elsewhere-after").await.unwrap();
    delete(&client, &used.id).await;
    other.terminate();
}
