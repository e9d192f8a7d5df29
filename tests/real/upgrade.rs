//! State on disk that an earlier build wrote is read by this one, and the other way round.
//!
//! `tests/fixtures` has a small pool and the records of a run directory for each format; its README.md
//! says how they are made.

mod contents;
mod fixture;
mod record_fields;

use std::fs;
use std::sync::Mutex;

use orlop_tests::*;

use contents::Contents;
use fixture::Fixture;

const FORMAT: &str = "format-1";

/// Two copies of one pool have the same ids, which one machine serves only once at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::await_holding_lock, reason = "each test has a runtime to itself")]
async fn pool_of_an_earlier_build_is_served() {
    needs_root!();
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let pool = TestPool::new(PoolFs::Directory, 0);
    let fixture = Fixture::named(FORMAT);
    fixture.unpack_pool(&pool.path);
    let launch = Launch::on(&pool);
    let looked = launch.run(&["doctor"]);
    assert!(looked.status.success(), "{}", looked.stdout);

    let mut daemon = launch.start().await;
    let contents = Contents::found(&daemon.client()).await;
    contents.check(&daemon.client()).await;
    // Also what this build has written over it.
    daemon.restart().await;
    contents.check(&daemon.client()).await;
    contents.check_copies(&daemon.client()).await;
    contents.delete(&daemon.client()).await;
    for directory in ["volumes", "snapshots", "groups", "group-snapshots", "staging", "trash"] {
        assert_eq!(pool.entries(directory), [""; 0], "{directory}");
    }
    assert!(!pool.path.join("set-aside").exists(), "something was set aside");
}

/// An upgrade while volumes are in use: the run directory is the earlier build's.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::await_holding_lock, reason = "each test has a runtime to itself")]
async fn node_records_of_an_earlier_build_are_taken_over() {
    needs_root!();
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let pool = TestPool::new(PoolFs::Directory, 0);
    let fixture = Fixture::named(FORMAT);
    fixture.unpack_pool(&pool.path);
    let mut daemon = Daemon::start(&pool).await;
    let contents = Contents::found(&daemon.client()).await;
    let used = contents.take_into_use(&daemon.client()).await;
    daemon.terminate();
    let run = pool.scratch().join("run/csi.orlop.io");
    for records in ["volumes", "pools"] {
        orlop_sys::file::remove_tree(&run.join(records)).unwrap();
    }
    fixture.unpack_run_directory(&run, pool.scratch().path());
    daemon.restart().await;
    let report = daemon.launch().run(&["doctor"]);
    assert!(report.status.success(), "{}", report.stdout);

    // The same call again, another one, and the end.
    contents.take_into_use(&daemon.client()).await;
    contents.check_in_use(&used);
    let other = daemon.client().new_target("other");
    expect_code(used.mounted.publish_at(&other, false).await, Code::FailedPrecondition);
    expect_code(daemon.client().delete(&used.raw.id).await, Code::FailedPrecondition);
    used.take_down(&daemon.client()).await;
    assert_eq!(daemon.leaks(), [""; 0]);
    assert_eq!(fs::read_dir(run.join("volumes")).unwrap().count(), 0, "a record was left");
}

/// What an earlier build may lose, or does not understand: without the stamp, the doctor repairs less
/// (decision 0043). The marker of a pool was the stamp alone, and no JSON.
const ADDED: [&str; 4] = [
    "served-by.json: new .run_stamp: text",
    "served-by.json: new .run_dir: text",
    "pools is new",
    "io-before is new",
];

/// A field that an earlier build does not know is lost there at the next change; one that it misses
/// makes the record unreadable to it. Decision 0001 says when the version has to change.
#[tokio::test(flavor = "multi_thread")]
async fn records_keep_the_fields_of_earlier_builds() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let contents = Contents::make(&daemon.client()).await;
    let used = contents.take_into_use(&daemon.client()).await;
    // As after a reboot: nothing is in use, and the run directory is kept beside.
    let run = pool.scratch().join("run/csi.orlop.io");
    let fixture = Fixture::named(FORMAT);
    if let Some(directory) = fixture::to_be_written() {
        daemon.lose_machine();
        fixture::write(&directory, &pool.path, &run, pool.scratch().path());
        daemon.restart().await;
    }
    let written = record_fields::of_tree(&pool.path)
        .into_iter()
        .chain(record_fields::of_tree(&run))
        .collect();
    let earlier = pool.scratch().ensure_dir("earlier");
    fixture.unpack_pool(&earlier.join("pool"));
    fixture.unpack_run_directory(&earlier.join("run"), pool.scratch().path());
    let known = record_fields::of_tree(&earlier);
    let mut differences = record_fields::differences(&known, &written);
    differences.retain(|difference| !ADDED.contains(&difference.as_str()));
    assert_eq!(differences, [""; 0]);
    used.take_down(&daemon.client()).await;
    contents.delete(&daemon.client()).await;
}
