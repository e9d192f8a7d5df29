//! The pool's filesystem becomes read-only, or the disk below it gives errors.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use orlop_sys::tool;
use orlop_tests::*;

use crate::faults::{TIMEOUT, complaint, is_abnormal, run};

const VOLUME: u64 = 32 * MIB;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

on_every_pool!(a_pool_remounted_read_only, a_disk_that_fails);

async fn a_pool_remounted_read_only(fs: PoolFs) {
    let disks = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let pool = TestPool::on_a_disk_in(&disks, fs, 2 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = |name| client.create(name).size(VOLUME).block();
    let volume = create("volume").done().await;
    let id = &volume.volume_id;
    run("mount", &["-o", "remount,ro", text(&pool.path)]);
    let reason = complaint(&client).await;
    assert!(reason.contains("read-only"), "{reason}");
    assert!(is_abnormal(&client, id).await);
    for code in [
        create("another").send().await.map(drop),
        client.delete(id).await,
        client.snapshot("snapshot", id).await.map(drop),
        client.expand(id, 2 * VOLUME).await.map(drop),
    ] {
        let status = expect_code(code, Code::Unavailable);
        assert!(status.message().contains("read-only"), "{status}");
    }
    assert_eq!(client.list_volumes().await.unwrap().len(), 1, "what is there can be seen");
    run("mount", &["-o", "remount,rw", text(&pool.path)]);
    assert!(client.probe().await.unwrap());
    assert!(!is_abnormal(&client, id).await);
    create("another").done().await;
    client.delete(id).await.unwrap();
}

/// Every block of the disk is an error from now on.
async fn a_disk_that_fails(fs: PoolFs) {
    let disks = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let pool = TestPool::on_a_disk_in(&disks, fs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = |name| client.create(name).size(VOLUME).block();
    let volume = create("volume").done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, MIB);
    let volume = client.create("mounted").size(VOLUME).fs("ext4").done().await;
    let mounted = client.on_node(&volume, mount("ext4"));
    mounted.up().await;
    Pattern::new(3).write(&mounted.data_path(), MIB);

    run("xfs_io", &["-x", "-c", "shutdown", text(&disks.path)]);
    let deadline = Instant::now() + TIMEOUT;
    // The filesystem itself notices when it writes to its journal.
    loop {
        expect_code(create("another").send().await, Code::Unavailable);
        let _ = tool::run("sync", ["--file-system", text(&pool.path)]);
        if client.probe().await.is_err() || Instant::now() > deadline {
            break;
        }
    }
    complaint(&client).await;
    assert!(is_abnormal(&client, &node.id).await);
    assert!(gives_up(&mounted).await, "the dead filesystem is called healthy");
    expect_code(client.snapshot("snapshot", &node.id).await, Code::Unavailable);
    write_direct(&node.target, 0, &Pattern::new(2).bytes(0, 4096)).unwrap_err();
    // The node can be cleared all the same.
    node.down().await;
    mounted.down().await;
    expect_code(client.delete(&node.id).await, Code::Unavailable);

    daemon.terminate();
    for disk in [&pool, &disks] {
        disk.unplug();
    }
    for disk in [&disks, &pool] {
        disk.power_on();
    }
    daemon.restart().await;
    assert!(!is_abnormal(&client, &node.id).await);
    assert_eq!(client.list_volumes().await.unwrap().len(), 2);
    create("another").done().await;
    node.up().await;
    Pattern::new(1).check(&node.target, MIB);
    node.down().await;
    mounted.up().await;
    assert!(!mounted.stats().await.unwrap().volume_condition.unwrap().abnormal);
    Pattern::new(3).check(&mounted.data_path(), MIB);
    mounted.down().await;
}

/// A filesystem notices that its disk is gone when it writes to its journal; does the node tell?
async fn gives_up(node: &OnNode) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        let written = File::create(node.target.join("late")).and_then(|file| file.sync_all());
        let condition = node.stats().await.unwrap().volume_condition.unwrap();
        if condition.abnormal {
            return written.is_err();
        }
    }
    false
}
