//! In the guest of tests/guest, as volumes have to become devices.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use orlop_model::{Health, HealthReason, Pool};

use super::*;
use crate::lvm::device_mapper;
use crate::lvm::testbed::{MIB, TestPool};

/// Longer than a probe takes that does not wait.
const MOMENT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(300);

fn reason(pool: &TestPool, id: &VolumeId) -> Option<HealthReason> {
    let condition = pool.opened.health.condition(id).unwrap();
    condition.problems().first().map(|problem| problem.reason)
}

/// As the engine does, in a thread.
fn begin_probe<'a>(
    scope: &'a std::thread::Scope<'a, '_>,
    health: &'a LvmHealth,
) -> Receiver<Result<()>> {
    let (sender, receiver) = mpsc::channel();
    scope.spawn(move || sender.send(health.storage_probe().unwrap().try_storage()).unwrap());
    receiver
}

#[test]
fn volume_is_as_well_as_its_logical_volume() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let (well, gone) = (pool.create("well", 8 * MIB), pool.create("gone", 8 * MIB));
    let short = pool.create("short", 16 * MIB);
    pool.opened.health.check().unwrap();
    assert_eq!(pool.opened.health().problems(), []);
    assert_eq!([&well.id, &gone.id, &short.id].map(|id| reason(&pool, id)), [None; 3]);
    let lv = |id| pool.opened.lvm.group().lv(id);
    pool.bed.run("lvremove", &[lv(&gone.id)]);
    pool.bed.run("lvreduce", &["--force", "--size", "8m", &lv(&short.id)]);
    pool.opened.lvm.forget_reports();
    let ids = [well.id.clone(), gone.id.clone(), short.id.clone(), pool.volume_id("never")];
    let found = pool.opened.health.conditions(&ids);
    let first =
        |number: usize| found[number].as_ref().unwrap().problems().first().map(|it| it.reason);
    assert_eq!(first(0), None);
    assert_eq!(first(1), Some(HealthReason::BackingFileMissing));
    assert_eq!(first(2), Some(HealthReason::BackingFileTruncated));
    assert!(matches!(found[3], Err(Error::NoSuchVolume(_))), "{found:?}");
    // It is not attached as what it is not.
    let refused =
        pool.opened.devices().ensure_attached(&short.id, orlop_model::DeviceAccess::ReadWrite);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
}

#[test]
fn pool_without_its_thin_pool_says_so() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let volume = pool.create("a", 8 * MIB);
    pool.bed.run("lvrename", &[&pool.bed.group, "tp", "elsewhere"]);
    pool.opened.lvm.forget_reports();
    let failed = pool.opened.health.check().unwrap_err().to_string();
    assert!(failed.contains("is gone"), "{failed}");
    assert_eq!(reason(&pool, &volume.id), Some(HealthReason::PoolErrors));
    pool.bed.run("lvrename", &[&pool.bed.group, "elsewhere", "tp"]);
    pool.opened.lvm.forget_reports();
    pool.opened.health.check().unwrap();
}

#[test]
fn probe_waits_for_a_disk_that_hangs() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let metadata = pool.opened.lvm.group().device_name("tp_tmeta");
    std::thread::scope(|scope| {
        let health = &pool.opened.health;
        begin_probe(scope, health).recv_timeout(LONG).unwrap().unwrap();
        tool_run("dmsetup", &["suspend", "--noflush", "--nolockfs", &metadata]);
        let probing = begin_probe(scope, health);
        let early = probing.recv_timeout(MOMENT);
        device_mapper::resume(&metadata).unwrap();
        assert!(early.is_err(), "it returned while the disk hung");
        probing.recv_timeout(LONG).unwrap().unwrap();
    });
}

#[test]
fn probe_waits_for_a_command_that_does_not_end() {
    assert_probe_waits(false);
}

/// The command does not even begin before the report is given up.
#[test]
fn probe_waits_for_a_command_behind_a_report_that_does_not_end() {
    assert_probe_waits(true);
}

fn assert_probe_waits(is_behind_a_report: bool) {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let held = pool.bed.lock();
    std::thread::scope(|scope| {
        if is_behind_a_report {
            scope.spawn(|| pool.opened.lvm.report());
            std::thread::sleep(MOMENT);
        }
        let creating = scope.spawn(|| {
            let lv = pool.opened.lvm.group().lv(&"tp");
            pool.opened.lvm.change(|| "tag".to_owned(), "lvchange", &["--addtag", "x", &lv])
        });
        // It is not stuck before it has run for long.
        begin_probe(scope, &pool.opened.health).recv_timeout(LONG).unwrap().unwrap();
        std::thread::sleep(Duration::from_secs(16));
        let probing = begin_probe(scope, &pool.opened.health);
        let early = probing.recv_timeout(MOMENT);
        drop(held);
        assert!(early.is_err(), "it returned while the command hung");
        probing.recv_timeout(LONG).unwrap().unwrap();
        creating.join().unwrap().unwrap();
    });
}

fn tool_run(name: &str, arguments: &[&str]) {
    orlop_sys::tool::run(name, arguments).unwrap();
}
