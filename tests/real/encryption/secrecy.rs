//! Keys are in no command line, environment, log, record or other file.

use orlop_tests::*;

use super::*;

const CANARY: &str = "canary-9c1e77-hums";

/// Environments of the daemon and its children, as often as it can.
fn environments(daemon: u32) -> Vec<u8> {
    let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).into_iter().flatten();
    let children = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let pids = children.chain([daemon.to_string()]);
    pids.filter_map(|pid| std::fs::read(format!("/proc/{pid}/environ")).ok()).flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_seen_nowhere() {
    needs_encryption!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = launch(&pool).env("ORLOP_LOG", "trace").start().await;
    let client = daemon.client();
    let node = new_volume(&client, "v", 64 * MIB, mount("ext4")).await.with_key(CANARY);
    let watcher = ChildWatcher::on(daemon.pid());
    let pid = daemon.pid();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let looking = {
        let stop = std::sync::Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                assert!(!contains(&environments(pid), CANARY));
            }
        })
    };
    watcher
        .until_seen("cryptsetup", async |_| {
            node.up().await;
            expect_code(node.with_key(&format!("{CANARY}2")).stage().await, Code::Unauthenticated);
            node.down().await;
        })
        .await;
    stop.store(true, std::sync::atomic::Ordering::Release);
    looking.join().unwrap();
    for line in watcher.seen() {
        assert!(!line.contains(CANARY), "{line}");
    }
    // Neither a core of the daemon nor another process of its user has its memory.
    let status = std::fs::metadata(format!("/proc/{pid}/environ")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&status), 0);
    assert!(!contains(daemon.log().as_bytes(), CANARY));
    daemon.terminate();
    let scratch = pool.scratch().path().to_owned();
    let held = files_that_hold(&[&scratch], CANARY);
    assert!(held.is_empty(), "{held:?}");
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
