//! A filesystem that was frozen for a copy when the daemon was killed.

use std::time::Duration;

use orlop_tests::*;

const VOLUME: u64 = 640 * MIB;
/// Enough that copying it takes much longer than noticing that it has begun.
const DATA: u64 = 384 * MIB;

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_filesystem_is_thawed_by_the_next_daemon() {
    needs_root!();
    // Copies take time where extents are not shared.
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["xfs", "ext4", "btrfs"] {
        let volume = client.create(fs).size(VOLUME).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        node.up().await;
        Pattern::new(1).write(&node.data_path(), DATA);
        let copying = {
            let (client, id) = (client.clone(), node.id.clone());
            tokio::spawn(async move { client.snapshot(fs, &id).await })
        };
        until_frozen(&pool).await;
        daemon.kill9();
        copying.await.unwrap().expect_err("the daemon that made the copy is gone");
        assert_eq!(frozen_notes(&pool).len(), 1, "{fs}: killed too late");
        daemon.restart().await;
        assert_writable(&node).await;
        assert_eq!(frozen_notes(&pool), [""; 0], "{fs}");
        assert_eq!(pool.entries("staging"), [""; 0], "{fs}");
        assert_eq!(client.list_snapshots().await.unwrap(), [], "{fs}: half a copy is no copy");

        let snapshot = client.snapshot(fs, &node.id).await.expect("the repeated call");
        assert_writable(&node).await;
        Pattern::new(1).check(&node.data_path(), DATA);
        client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

fn frozen_notes(pool: &TestPool) -> Vec<String> {
    let directory = pool.scratch().join("run/csi.orlop.io/frozen");
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The copy has begun, hence its source is frozen.
async fn until_frozen(pool: &TestPool) {
    let copied = |name: &String| {
        let data = pool.path.join("staging").join(name).join("data");
        orlop_sys::file::allocated_bytes(&data).is_ok_and(|bytes| bytes > 0)
    };
    let begun = || !frozen_notes(pool).is_empty() && pool.entries("staging").iter().any(copied);
    for _ in 0..60_000 {
        if begun() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no copy has begun");
}

/// A write to a frozen filesystem does not fail, it waits; so it is given to a thread that may
/// be left waiting.
async fn assert_writable(node: &OnNode) {
    let path = node.target.join("after");
    let writing = tokio::task::spawn_blocking(move || Pattern::new(9).write(&path, MIB));
    let written = tokio::time::timeout(Duration::from_secs(120), writing).await;
    assert!(written.is_ok(), "{} is still frozen", node.target.display());
}
