//! A daemon that is killed while its commands of LVM are under way.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use orlop_model::{Catalogue, ContentSource, Draft, Error, Provisioner};
use rustix::fs::{FlockOperation, flock};

use crate::lvm::pool_lock::{commands_lock, making_lock};
use crate::lvm::testbed::{MIB, TestPool, Testbed};
use crate::lvm::{LvmPool, LvmPoolConfig};

const GROUP: &str = "ORLOP_TEST_LVM_GROUP";
const SETTINGS: &str = "ORLOP_TEST_LVM_SETTINGS";
const DONE: &str = "ORLOP_TEST_LVM_DONE";
const BASE: &str = "base";
const CALLS: usize = 24;

/// Run by the test below, in a process that it kills.
#[test]
fn daemon_that_is_killed() {
    let variable = |name| std::env::var(name).ok();
    let (Some(group), Some(settings), Some(done)) =
        (variable(GROUP), variable(SETTINGS), variable(DONE))
    else {
        return;
    };
    let bed = Testbed::elsewhere(&group);
    let config = LvmPoolConfig { lvm_settings: settings, ..bed.config(false) };
    let pool = TestPool { opened: LvmPool::open(config).unwrap(), bed };
    let base = pool.opened.catalogue.volume(&pool.volume_id(BASE)).unwrap().unwrap();
    std::thread::scope(|scope| {
        for number in 0..CALLS {
            let (pool, base, done) = (&pool, &base, Path::new(&done));
            scope.spawn(move || {
                let name = number.to_string();
                match number % 3 {
                    0 => drop(pool.create(&name, 8 * MIB)),
                    1 => drop(pool.snapshot(&name, base).unwrap()),
                    _ => {
                        let source = ContentSource::Volume(base.id.clone());
                        let new = pool.new_volume(&name, 12 * MIB, Some(source));
                        pool.provisioner().begin_volume(&new).and_then(Draft::commit).unwrap();
                    }
                }
                std::fs::write(done.join(&name), "").unwrap();
            });
        }
    });
    // Nothing here is cleaned up: the volume group is the other process's.
    std::process::exit(0);
}

/// What is in the thin pool, as far as LVM knows.
fn names(pool: &TestPool) -> BTreeSet<String> {
    pool.lv_names().into_iter().collect()
}

#[test]
#[allow(clippy::disallowed_methods)]
fn next_daemon_knows_all_that_commands_of_a_killed_one_have_made() {
    let Some(pool) = TestPool::new(192 * MIB) else { return };
    let base = pool.create(BASE, 8 * MIB);
    pool.write(&base.id, 6);
    pool.opened.close();
    let done = tempfile::tempdir().unwrap();
    let mut daemon = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lvm::open::tests::killed::daemon_that_is_killed"])
        .env(GROUP, &pool.bed.group)
        .env(SETTINGS, pool.bed.settings())
        .env(DONE, done.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let finished = || std::fs::read_dir(done.path()).unwrap().count();
    while finished() < CALLS / 4 {
        assert!(daemon.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();

    let pool = pool.reopen();
    let known = || {
        let volumes = pool.opened.catalogue.volumes(None, 0).unwrap();
        let volumes = volumes.into_iter().map(|(id, record)| record.map(|_| id.to_string()));
        let snapshots = pool.opened.catalogue.snapshots(None, 0).unwrap();
        let snapshots = snapshots.into_iter().map(|record| record.id.to_string());
        let volumes: BTreeSet<String> = volumes.collect::<Result<_, _>>().unwrap();
        volumes.into_iter().chain(snapshots).collect::<BTreeSet<String>>()
    };
    assert_eq!(names(&pool), known());
    for name in std::fs::read_dir(done.path()).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        let id = match name.parse::<usize>().unwrap() % 3 {
            1 => pool.snapshot_id(&name).to_string(),
            _ => pool.volume_id(&name).to_string(),
        };
        assert!(known().contains(&id), "{name} was reported as made");
    }
    // Nothing that was under way makes anything later.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(names(&pool), known());
    // What was not finished can be made again.
    for number in (0..CALLS).filter(|number| number % 3 == 0) {
        let name = number.to_string();
        if !known().contains(&pool.volume_id(&name).to_string()) {
            pool.create(&name, 8 * MIB);
        }
    }
    assert_eq!(pool.read(&base.id), 6);
}

#[test]
fn pool_is_absent_while_a_command_of_an_earlier_daemon_runs() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    pool.opened.close();
    // As a command has it until it ends.
    let command = File::open(commands_lock(&pool.opened.info.id)).unwrap();
    flock(&command, FlockOperation::LockShared).unwrap();
    let absent = LvmPool::open(pool.bed.config(false)).unwrap_err();
    assert!(matches!(&absent, Error::Unreachable { .. }), "{absent:?}");
    assert!(absent.to_string().contains("is still running"), "{absent}");
    drop(command);
    LvmPool::open(pool.bed.config(false)).unwrap();
}

/// A pool that was made twice at the same time would have two headers.
#[test]
fn pool_that_an_earlier_daemon_is_making_is_not_made_again() {
    let Some(bed) = Testbed::with_devices(1) else { return };
    bed.create_thin_pool("tp", 64 * MIB);
    let report = bed.lvm().report().unwrap();
    let file = making_lock(&report.group, "tp");
    let command = File::create(&file).unwrap();
    flock(&command, FlockOperation::LockShared).unwrap();
    let opened = std::thread::scope(|scope| {
        let opening = scope.spawn(|| LvmPool::open(bed.config(true)).unwrap());
        std::thread::sleep(Duration::from_secs(3));
        bed.run("lvchange", &["--addtag", "orlop1:pool:89abcdef", &bed.lvm().group().lv(&"tp")]);
        drop(command);
        opening.join().unwrap()
    });
    assert_eq!(opened.info.id.to_string(), "89abcdef");
    std::fs::remove_file(file).unwrap();
}
