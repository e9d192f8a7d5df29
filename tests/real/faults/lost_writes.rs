//! An overcommitted pool that is full, or a disk below it that fails, takes no more of what workloads have
//! written. A mount shows nothing of it; each place that an operator looks at has to.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use orlop_sys::file;
use orlop_tests::*;

use crate::daemon::hung::until;
use crate::daemon::metrics::{scrape, with_metrics};

const VOLUME: u64 = GIB;
/// More than is left of the pool, and less than the volume has.
const WRITTEN: usize = 64 << 20;

/// Leaves a little more than the floor.
fn take_most(pool: &TestPool) -> File {
    let hog = File::create_new(pool.path.join("hog")).unwrap();
    let space = file::space(&pool.path).unwrap();
    let left = space.total / 20 + 8 * MIB;
    file::preallocate(&hog, 0, space.free - left).unwrap();
    hog
}

/// As a workload that neither syncs nor looks at errors.
fn write_without_sync(path: &Path) {
    let mut file = File::options().create(true).truncate(false).write(true).open(path).unwrap();
    let _ = file.write_all(&Pattern::new(1).bytes(0, WRITTEN));
}

fn lines(daemon: &Daemon, level: &str, words: &str) -> usize {
    let log = daemon.log();
    log.lines().filter(|line| line.contains(level) && line.contains(words)).count()
}

fn overcommitted(pool: &TestPool) -> Launch {
    Launch::on(pool).env("ORLOP_POOL_OVERCOMMIT", "10")
}

/// Once all answers agree: while the kernel writes back, the space of the pool changes between two of them.
async fn condition_everywhere(node: &OnNode, client: &Client) -> v1::VolumeCondition {
    let deadline = std::time::Instant::now() + crate::faults::TIMEOUT;
    loop {
        let on_node = node.stats().await.unwrap().volume_condition.unwrap();
        let by_controller = client.condition(&node.id).await.unwrap();
        let listed = client.list_volumes().await.unwrap();
        let entry =
            listed.into_iter().find(|entry| entry.volume.as_ref().unwrap().volume_id == node.id);
        let in_list = entry.unwrap().status.unwrap().volume_condition.unwrap();
        if by_controller == in_list && on_node.abnormal == by_controller.abnormal {
            return on_node;
        }
        let differ = format!("{on_node:?} {by_controller:?} {in_list:?}");
        assert!(std::time::Instant::now() < deadline, "the answers do not agree: {differ}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Whatever the filesystem, and also if the space is there again by the time that one looks.
#[tokio::test(flavor = "multi_thread")]
async fn writes_lost_on_a_full_pool_are_reported_until_unstaged() {
    needs_root!();
    for fs in ["ext4", "xfs", "btrfs", ""] {
        let pool = TestPool::new(PoolFs::Xfs, 512 * MIB);
        let (launch, metrics) = with_metrics(overcommitted(&pool));
        let mut daemon = launch.start().await;
        let client = daemon.client();
        let capability = if fs.is_empty() { block() } else { mount(fs) };
        let create = client.create("volume").size(VOLUME).capability(capability.clone());
        let node = client.on_node(&create.done().await, capability);
        node.up().await;
        let hog = take_most(&pool);
        let before = condition_everywhere(&node, &client).await;
        assert!(!before.abnormal, "{fs}: {}", before.message);

        write_without_sync(&node.data_path());
        // The kernel writes back when it likes; statistics of a pool in need do not wait for that.
        let _ = file::sync_filesystem(&pool.path);
        until("the loss is reported", || async {
            let condition = condition_everywhere(&node, &client).await;
            condition.abnormal && condition.message.contains("is lost")
        })
        .await;
        assert_eq!(lines(&daemon, "ERROR", "could not keep data"), 1, "{fs}");
        let scraped = scrape(&metrics).await;
        let ours = [("pool", "default")];
        assert_eq!(scraped.value("orlop_volumes_with_lost_writes", &ours), 1.0, "{fs}");
        assert_eq!(scraped.value("orlop_pool_below_floor", &ours), 1.0, "{fs}");
        let ready = daemon.launch().run(&["probe", "--ready"]);
        assert_eq!(ready.status.code(), Some(0), "{fs}: it serves all the same");
        assert!(ready.stdout.contains("below its floor"), "{fs}: {ready:?}");

        drop(hog);
        std::fs::remove_file(pool.path.join("hog")).unwrap();
        until("there is space again", || async {
            let ready = daemon.launch().run(&["probe", "--ready"]);
            !ready.stdout.contains("below its floor")
        })
        .await;
        daemon.restart().await;
        let after = condition_everywhere(&node, &client).await;
        assert!(after.message.contains("is lost"), "{fs}: {}", after.message);
        assert_eq!(lines(&daemon, "ERROR", "could not keep data"), 1, "{fs}: once");

        node.down().await;
        assert!(!client.condition(&node.id).await.unwrap().abnormal, "{fs}");
        if fs != "btrfs" {
            // btrfs has counted errors, and needs a check.
            node.up().await;
            let again = condition_everywhere(&node, &client).await;
            assert!(!again.abnormal, "{fs}: {}", again.message);
            node.down().await;
        }
    }
}

/// On a node where nothing asks. Then the list, the page's figures, the events and the doctor have it.
#[tokio::test(flavor = "multi_thread")]
async fn lost_writes_are_seen_without_calls() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 512 * MIB);
    let daemon = overcommitted(&pool).start().await;
    let client = daemon.client();
    let create = client.create("volume").size(VOLUME).capability(block());
    let node = client.on_node(&create.done().await, block());
    node.up().await;
    let hog = take_most(&pool);
    write_without_sync(&node.data_path());
    until("the loss is logged", || async { lines(&daemon, "ERROR", "could not keep data") == 1 })
        .await;
    let run = |words: &[&str]| daemon.launch().run(words).stdout;
    assert!(run(&["volume", "list"]).contains("WritesLost"));
    assert!(run(&["pool", "status"]).contains("1 volume with WritesLost"));
    assert!(run(&["events", "--level", "error"]).contains("could not keep data"));
    assert!(run(&["doctor"]).contains("writes-lost"));
    drop(hog);
    std::fs::remove_file(pool.path.join("hog")).unwrap();
    node.down().await;
    assert!(!run(&["doctor"]).contains("writes-lost"));
}

/// On a node where nothing asks: no kubelet, no sidecar, no probe.
#[tokio::test(flavor = "multi_thread")]
async fn crossing_the_floor_is_logged_without_calls() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 512 * MIB);
    let daemon = overcommitted(&pool).start().await;
    assert_eq!(lines(&daemon, "WARN", "below its floor"), 0);
    let hog = File::create_new(pool.path.join("hog")).unwrap();
    file::preallocate(&hog, 0, file::space(&pool.path).unwrap().free - 4 * MIB).unwrap();
    until("it is logged", || async { lines(&daemon, "WARN", "below its floor") == 1 }).await;
    hog.set_len(0).unwrap();
    until("the end is logged", || async { lines(&daemon, "INFO", "above its floor again") == 1 })
        .await;
    assert_eq!(lines(&daemon, "WARN", "below its floor"), 1);
}
