//! A pool that is one managed image: its own mount and device survive the daemon too.

use orlop_tests::*;

use crate::restart::in_use::{check_every_call, in_use, take_down};

#[tokio::test(flavor = "multi_thread")]
async fn a_managed_pool_stays_mounted_under_its_workloads() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool).env("ORLOP_POOL_IMAGE_SIZE", "6GiB");
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let mut all = Vec::new();
    for fs in ["xfs", "ext4"] {
        all.push(in_use(&client, fs, mount(fs)).await);
    }
    all.push(in_use(&client, "block", block()).await);
    daemon.kill9();
    for used in &all {
        used.workload.goes_on().await;
    }
    daemon.restart().await;
    for used in &all {
        used.workload.goes_on().await;
        check_every_call(&client, used).await;
    }
    // In use, it stays when the daemon stops, and is found again.
    daemon.terminate();
    for used in &all {
        used.workload.goes_on().await;
    }
    daemon.restart().await;
    for used in all {
        take_down(&client, used).await;
    }
    daemon.terminate();
    assert_eq!(daemon.leaks(), [""; 0], "unused, it is unmounted and detached at the end");
}
