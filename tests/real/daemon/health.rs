//! Probe tells the truth: about the start, the pool, and the tools.

use std::time::Duration;

use orlop_sys::tool;
use orlop_tests::*;

/// The reason that Probe gives for being unhealthy.
async fn complaint(client: &Client) -> String {
    let status = client.failed_probe().await;
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    status.message().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_fails_while_the_pool_is_moved_away() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let elsewhere = pool.scratch().join("elsewhere");
    std::fs::rename(&pool.path, &elsewhere).unwrap();
    let reason = complaint(&client).await;
    assert!(reason.contains(pool.path.to_str().unwrap()), "{reason}");
    // Something else in its place is not the pool.
    std::fs::create_dir(&pool.path).unwrap();
    complaint(&client).await;
    std::fs::remove_dir(&pool.path).unwrap();
    std::fs::rename(&elsewhere, &pool.path).unwrap();
    assert!(client.probe().await.unwrap());
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    client.delete(&volume.volume_id).await.unwrap();
}

/// The daemon alone sees the tool disappear: it runs in a separate mount namespace, in which
/// something that cannot be run covers the tool.
#[tokio::test(flavor = "multi_thread")]
async fn probe_fails_while_a_tool_is_missing() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Launch::on(&pool).with_own_mounts().start().await;
    let client = daemon.client();
    let mkfs = tool::find("mkfs.xfs").expect("mkfs.xfs is installed");
    let mkfs = mkfs.canonicalize().unwrap();
    let mkfs = mkfs.to_str().unwrap();
    let target = format!("--target={}", daemon.pid());
    let inside = |command: &[&str]| {
        let enter = ["--mount", target.as_str(), "--"];
        tool::run("nsenter", enter.iter().chain(command)).unwrap();
    };
    inside(&["mount", "--bind", "/dev/null", mkfs]);
    let reason = complaint(&client).await;
    assert!(reason.contains("mkfs.xfs"), "{reason}");
    inside(&["umount", mkfs]);
    assert!(client.probe().await.unwrap());
}

/// Whether "not ready" is seen depends on how quick the machine is; what must hold is that Probe
/// never fails during the start, never goes back, and that readiness means that all volumes are known.
#[tokio::test(flavor = "multi_thread")]
async fn probe_is_not_ready_until_all_volumes_are_loaded() {
    needs_root!();
    const VOLUMES: usize = 200;
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for number in 0..VOLUMES {
        client.create(&format!("v{number}")).size(MIB).block().done().await;
    }
    daemon.kill9();
    let watching = {
        let client = client.clone();
        tokio::spawn(async move {
            loop {
                match client.probe().await {
                    Ok(true) => return client.list_volumes().await.unwrap().len(),
                    Ok(false) => match client.list_volumes().await {
                        // Ready in the meantime.
                        Ok(list) => assert_eq!(list.len(), VOLUMES),
                        Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
                    },
                    // Not listening yet.
                    Err(status) => assert!(is_connection_lost(&status), "{status}"),
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    daemon.restart().await;
    assert_eq!(watching.await.unwrap(), VOLUMES);
}

/// ID-23.
#[tokio::test(flavor = "multi_thread")]
async fn probe_may_be_called_often_and_concurrently() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let asking = (0..8).map(|_| {
        let client = daemon.client();
        tokio::spawn(async move {
            for _ in 0..100 {
                assert!(client.probe().await.unwrap());
            }
        })
    });
    for each in asking.collect::<Vec<_>>() {
        each.await.unwrap();
    }
}
