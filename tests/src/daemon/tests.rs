use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::{GIB, MIB, PoolFs, block, mount, needs_root};

/// The harness would be worth little if it did not notice.
#[tokio::test(flavor = "multi_thread")]
async fn leaks_of_a_test_fail_it_and_are_removed() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    for capability in [mount("ext4"), block()] {
        let daemon = Daemon::start(&pool).await;
        let client = daemon.client();
        let create = client.create("volume").size(64 * MIB);
        let volume = create.capability(capability.clone()).done().await;
        let node = client.on_node(&volume, capability);
        node.up().await;
        let pid = daemon.pid();
        assert!(!daemon.leaks().is_empty());

        let dropped = catch_unwind(AssertUnwindSafe(|| drop(daemon)));
        assert!(dropped.is_err(), "the leak was not noticed");
        let left = leaks::describe(pool.scratch().path(), &pool.fixtures());
        assert_eq!(left, [""; 0]);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        // For the next round.
        let clean = Daemon::start(&pool).await;
        clean.client().delete(&volume.volume_id).await.unwrap();
        std::fs::remove_dir(&node.target).or_else(|_| std::fs::remove_file(&node.target)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_scratch_removes_everything() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Btrfs, GIB);
    let ground = pool.scratch().path().to_owned();
    assert!(!leaks::describe(&ground, &[]).is_empty());
    drop(pool);
    assert_eq!(leaks::describe(&ground, &[]), [""; 0]);
    assert!(!ground.exists());
}
