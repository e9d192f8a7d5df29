//! A daemon that starts while an operator looks.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_sys::{file, filesystem};
use orlop_tests::*;

use crate::doctor::fixture::Fixture;

/// Far more than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(120);

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// As with `| less`, or in a terminal whose output is paused.
#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_read_keeps_no_daemon_from_starting() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    fixture.block_volume("v").await;
    let path = fixture.pool.path.to_str().unwrap().to_owned();
    let unread = UnreadLog::new(fixture.pool.scratch());
    for words in [&["doctor"][..], &["pool", "show", &path]] {
        fixture.daemon.terminate();
        let full = unread.fill();
        let mut looking = fixture.daemon.launch().begin(words, unread.path());
        // It has all that it prints.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!looking.has_ended(), "{words:?}: its output was read");
        let begun = Instant::now();
        let ended = fixture.daemon.try_restart().await;
        assert!(ended.is_none(), "{words:?}: {ended:?} {}", fixture.daemon.log_end());
        assert!(begun.elapsed() < Duration::from_secs(15), "{words:?}: {:?}", begun.elapsed());
        drop((full, looking));
    }
}

/// Not "another daemon", which an operator would look for in vain.
#[tokio::test(flavor = "multi_thread")]
async fn what_holds_a_lock_is_named() {
    needs_root!();
    // The kernel has another number for a lock on btrfs than for the file.
    for fs in [PoolFs::Xfs, PoolFs::Btrfs] {
        let mut fixture = Fixture::new(fs).await;
        fixture.daemon.terminate();
        let this = format!("process {} (", std::process::id());
        for held in ["pool/orlop.pool", "run/csi.orlop.io/daemon.lock"] {
            let _lock = file::try_lock(&fixture.pool.scratch().join(held)).unwrap().unwrap();
            let refused = fixture.daemon.launch().run_to_end();
            assert_eq!(refused.status.code(), Some(1), "{held}: {}", refused.output);
            let reason = refused.output.lines().last().unwrap_or_default();
            assert!(reason.contains(&this) && reason.contains("(real"), "{held}: {reason}");
        }
    }
}

/// Thawed when it is dropped, also by a test that fails.
struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = filesystem::ensure_thawed(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_pool_hides_no_other_and_a_start_waits_for_the_doctor() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, GIB);
    // Its image has to be mounted, which writes.
    let pools = [("hung", &hung, "image_size = \"320MiB\""), ("well", &well, "")];
    let mut daemon = Launch::on_several(&pools).start().await;
    daemon.terminate();
    let launch = daemon.launch().clone().env("ORLOP_CONFIG", well.scratch().join("orlop.toml"));
    let output = well.scratch().join("output");
    fs::write(&output, "").unwrap();
    let printed = || fs::read_to_string(&output).unwrap();
    // Dropped after the thaw: before that it cannot end.
    let mut looking: Running;
    filesystem::freeze(&hung.path).unwrap();
    let frozen = Frozen(hung.path.clone());
    looking = launch.begin(&["doctor"], &output);
    // It has its locks by then, as far as it gets them.
    tokio::time::sleep(Duration::from_secs(2)).await;
    daemon.start_again();
    let client = daemon.client();
    let deadline = Instant::now() + TIMEOUT;
    while !client.capacity().await.is_ok_and(|answer| answer.available_capacity > 0) {
        assert!(Instant::now() < deadline, "{}", daemon.log_end());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    until("the doctor says what it could not look at", || {
        printed().contains("cannot inspect pool hung")
    })
    .await;
    assert!(printed().contains("pool well at"), "{}", printed());
    drop(frozen);
    until("the doctor ends", || looking.has_ended()).await;
    let deadline = Instant::now() + TIMEOUT;
    while client.list_volumes().await.is_err() {
        assert!(Instant::now() < deadline, "{}", daemon.log_end());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
