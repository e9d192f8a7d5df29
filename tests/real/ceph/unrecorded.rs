//! Volumes in use of which no node record is found.

use std::fs;
use std::path::PathBuf;

use orlop_sys::loopdev::{self, LoopDevice};
use orlop_tests::*;

use crate::{VOLUME, delete, up_on};

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
async fn a_writer_whose_record_is_lost_is_held_still() {
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
    assert!(log.contains("held writers still for a cut"), "{log}");
    workload.goes_on().await;
    workload.finish();
    used.unpublish().await.unwrap();
    used.unstage().await.unwrap();
    client.controller_unpublish(&used.id, "unseen").await.unwrap();
    delete(&client, &used.id).await;
    client.delete_snapshot(&snapshot).await.unwrap();
}
