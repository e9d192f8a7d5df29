//! Beside a daemon that serves the pool.

use std::fs;

use orlop_tests::*;

use crate::doctor::fixture::{Fixture, doctor, footprint};

#[tokio::test(flavor = "multi_thread")]
async fn volumes_in_use_are_no_finding() {
    needs_root!();
    let fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    fixture.doctor(&["--repair"]).expect(0, &[]);
    Pattern::new(3).write(&node.data_path(), MIB);
    Pattern::new(3).check(&node.data_path(), MIB);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_repaired_beside_a_daemon() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    let record = fixture.pool.volume_record(&id);
    let text = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    fs::create_dir(fixture.pool.path.join(format!("staging/{id}.1"))).unwrap();
    let before = footprint(&fixture.pool.path);
    let report = fixture.doctor(&["--repair"]);
    report.expect(1, &[("data-without-record", "by-hand")]);
    assert_eq!(footprint(&fixture.pool.path), before);
    fs::write(&record, text).unwrap();
    fixture.doctor(&[]).expect(0, &[]);
    fixture.daemon.terminate();
}

/// Also where neither its socket nor a pool that it has locked is given, as on Ceph.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_is_known_by_its_run_directory() {
    needs_root!();
    let fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    let launch = fixture.daemon.launch().clone();
    let elsewhere = fixture.pool.scratch().join("other-pool");
    let launch = launch.without_env("CSI_ENDPOINT").env("ORLOP_POOL", elsewhere);
    let freeze = RecordedFreeze::begin(&launch, &node.staging);
    doctor(&launch, &["--repair"]).expect(1, &[("no-pool", "by-hand")]);
    assert!(freeze.lasts(), "the daemon may have frozen it just now");
    drop(freeze);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_are_one_per_line() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    fs::remove_file(fixture.pool.volume_record(&id)).unwrap();
    let ran = fixture.daemon.launch().run(&["doctor"]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let line = ran.stdout.lines().find(|line| line.starts_with("data-without-record: "));
    let line = line.unwrap_or_else(|| panic!("{ran:?}"));
    assert!(line.contains(&id) && line.contains("; --repair would move it to "), "{line}");
    let nothing = fixture.daemon.launch().clone().without_env("ORLOP_POOL").run(&["doctor"]);
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
}
