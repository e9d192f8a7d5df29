//! The cluster goes in the midst of an unmount. What waits in the kernel cannot be called off.

use std::path::Path;
use std::time::{Duration, Instant};

use orlop_tests::*;
use rustix::process::Signal;

use crate::ceph::{TIMEOUT, VOLUME, persist, up_on};

const DATA: u64 = 8 * MIB;
const NODE: &str = "stuck";
/// Soon enough not to hold up the tests, and far more than a cluster needs that is there.
const TIMEOUT_SECONDS: u32 = 6;

fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn on_pool(client: &Client, name: &str, pool: &str) -> Create {
    client.create(name).size(VOLUME).parameter("pool", pool)
}

/// Unmounts while the cluster takes no writes, and returns when the kernel waits for it.
async fn begin_to_unstage(daemon: &Daemon, used: &OnNode) -> tokio::task::JoinHandle<Answer<()>> {
    used.unpublish().await.unwrap();
    daemon.signal_exporters(Signal::STOP);
    let unstaging = {
        let used = used.clone();
        tokio::spawn(async move { used.unstage().await })
    };
    until("the mount is gone from sight", || !is_mounted(&used.staging)).await;
    unstaging
}

#[tokio::test(flavor = "multi_thread")]
async fn hung_unmount_does_not_block_other_calls() {
    needs_root!();
    let ceph = TestCeph::small();
    let mut daemon = ceph.launch_beside_a_directory(NODE, TIMEOUT_SECONDS).start().await;
    let client = daemon.client();
    let volume = on_pool(&client, "stuck", "ceph").fs("xfs").done().await;
    let used = up_on(&client, &daemon, NODE, &volume, mount("xfs")).await;
    Pattern::new(1).write(&used.data_path(), DATA);
    let unstaging = begin_to_unstage(&daemon, &used).await;
    let outage = ceph.take_down();
    daemon.signal_exporters(Signal::CONT);

    expect_code(used.unstage().await, Code::Aborted);
    expect_code(used.stage().await, Code::Aborted);
    assert!(client.probe().await.unwrap(), "the other pool serves");
    let other = persist(|| on_pool(&client, "other", "local").fs("xfs").send()).await;
    let other = up_on(&client, &daemon, NODE, &other, mount("xfs")).await;
    Pattern::new(2).write(&other.data_path(), DATA);
    other.down().await;
    assert!(!unstaging.is_finished());

    // When it is back, all goes on, and nothing is lost. The call may be answered "try again", if it
    // asks the cluster before that is known to be back.
    drop(outage);
    let _ = unstaging.await.unwrap();
    persist(|| used.unstage()).await;
    persist(|| used.stage()).await;
    used.publish().await.unwrap();
    Pattern::new(1).check(&used.data_path(), DATA);

    // For a cluster that does not come back: without its export, what waits for it fails.
    let unstaging = begin_to_unstage(&daemon, &used).await;
    let outage = ceph.take_down();
    daemon.signal(Signal::TERM);
    daemon.kill_exporters();
    let _ = unstaging.await.unwrap();
    assert_eq!(daemon.wait_for_end().code(), Some(0));

    drop(outage);
    daemon.restart().await;
    persist(|| used.unstage()).await;
    assert_eq!(daemon.leaks(), Vec::<String>::new());
    let again = up_on(&client, &daemon, NODE, &volume, mount("xfs")).await;
    Pattern::new(1).check(&again.data_path(), DATA);
    again.down().await;
}

/// Of a killed or stopped daemon a thread is left in the kernel. The next one serves what it can, and
/// what was written is there when the cluster is.
#[tokio::test(flavor = "multi_thread")]
async fn stop_does_not_wait_for_a_hung_unmount() {
    needs_root!();
    let ceph = TestCeph::small();
    let mut daemon = ceph.launch_beside_a_directory(NODE, TIMEOUT_SECONDS).start().await;
    let client = daemon.client();
    let volume = on_pool(&client, "stuck", "ceph").fs("ext4").done().await;
    let used = up_on(&client, &daemon, NODE, &volume, mount("ext4")).await;
    Pattern::new(1).write(&used.data_path(), DATA);
    let unstaging = begin_to_unstage(&daemon, &used).await;
    let outage = ceph.take_down();
    daemon.signal_exporters(Signal::CONT);
    daemon.signal(Signal::TERM);
    until("stopped", || daemon.log().contains("stopped")).await;
    unstaging.await.unwrap().unwrap_err();

    let mut former = daemon.start_beside();
    let other = persist(|| on_pool(&client, "other", "local").fs("ext4").send()).await;
    let other = up_on(&client, &daemon, NODE, &other, mount("ext4")).await;
    other.down().await;
    assert!(!former.has_ended(), "nothing of the former daemon was left, which proves nothing");
    expect_code(used.unstage().await, Code::Unavailable);

    drop(outage);
    assert_eq!(former.wait_for_end().code(), Some(0));
    persist(|| used.unstage()).await;
    assert_eq!(daemon.leaks(), Vec::<String>::new());
    let again = up_on(&client, &daemon, NODE, &volume, mount("ext4")).await;
    Pattern::new(1).check(&again.data_path(), DATA);
    again.down().await;
}
