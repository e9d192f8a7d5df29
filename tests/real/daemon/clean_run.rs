//! `make clean-run` beside a daemon.

use orlop_sys::tool;
use orlop_tests::*;

#[tokio::test(flavor = "multi_thread")]
async fn clean_run_refuses_while_a_daemon_uses_the_pool() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    daemon.client().create("kept").size(MIB).block().done().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/clean-run");
    let home = format!("ORLOP_TEST_HOME={}", pool.scratch().path().display());
    let refused = tool::run("env", [home.as_str(), script]).unwrap_err().to_string();
    assert!(refused.contains("a daemon uses"), "{refused}");
    assert_eq!(pool.entries("volumes").len(), 1, "the pool was deleted under the daemon");
    daemon.terminate();
}
