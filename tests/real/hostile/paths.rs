//! Paths that lead where no volume belongs.

use std::path::{Path, PathBuf};

use orlop_tests::*;

async fn staged(client: &Client, name: &str) -> OnNode {
    let volume = client.create(name).size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.stage().await.unwrap();
    node
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn target_must_not_overlap_the_staging_path() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = staged(&client, "v").await;
    let above = node.staging.parent().unwrap().to_owned();
    for target in [node.staging.clone(), node.staging.join("inside"), above] {
        let refused = node.publish_at(&target, false).await;
        expect_code(refused, Code::InvalidArgument);
    }
    assert!(!node.staging.join("inside").exists());
    node.publish().await.unwrap();
    Pattern::new(1).write(&node.data_path(), MIB);

    // Unpublishing what is not a publication takes nothing away.
    expect_code(node.unpublish_at(&node.staging).await, Code::FailedPrecondition);
    Pattern::new(1).check(&node.data_path(), MIB);
    node.down().await;
}

/// What all volumes depend on, with a link that leads there.
fn off_limits(pool: &TestPool) -> Vec<PathBuf> {
    let run = pool.scratch().join("run");
    let link = pool.scratch().join("link");
    std::os::unix::fs::symlink(&pool.path, &link).unwrap();
    vec![
        pool.path.clone(),
        pool.path.join("volumes"),
        pool.path.join("new"),
        run.join("csi.orlop.io/inline/new"),
        run.join("csi.orlop.io"),
        run,
        link.join("volumes"),
        link.join("new/deep"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn protected_paths_are_not_mounted_over() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = staged(&client, "v").await;
    let block_volume = client.create("b").size(MIB).block().done().await;
    let block_node = client.on_node(&block_volume, block());
    block_node.stage().await.unwrap();
    let other = client.create("w").size(64 * MIB).fs("ext4").done().await;
    let other = client.on_node(&other, mount("ext4"));
    for path in off_limits(&pool) {
        expect_code(node.publish_at(&path, false).await, Code::InvalidArgument);
        expect_code(block_node.publish_at(&path, false).await, Code::InvalidArgument);
        let request = v1::NodeStageVolumeRequest {
            staging_target_path: text(&path),
            ..other.stage_request()
        };
        expect_code(client.node_stage(request).await, Code::InvalidArgument);
    }
    assert!(!pool.path.join("new").exists());
    block_node.unstage().await.unwrap();
    node.unstage().await.unwrap();
    assert_eq!(daemon.leaks(), [""; 0]);
    for id in [&node.id, &other.id, &block_node.id] {
        client.delete(id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dotdot_paths_are_refused_by_every_call() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let node = staged(&client, "v").await;
    let inside = text(pool.scratch().path());
    let climbing = [
        "/".to_owned(),
        "//.//".to_owned(),
        "..".to_owned(),
        "relative".to_owned(),
        format!("{inside}/../../etc"),
        format!("{inside}/targets/.."),
        format!("{inside}/nul\0byte"),
        format!("/{}", "x/".repeat(2100)),
    ];
    for path in climbing {
        let path = Path::new(&path);
        let stage =
            v1::NodeStageVolumeRequest { staging_target_path: text(path), ..node.stage_request() };
        expect_code(client.node_stage(stage).await, Code::InvalidArgument);
        expect_code(client.node_unstage(&node.id, path).await, Code::InvalidArgument);
        expect_code(node.publish_at(path, false).await, Code::InvalidArgument);
        expect_code(node.unpublish_at(path).await, Code::InvalidArgument);
        let asked = client.node_stats(&node.id, path).await.err().unwrap().code();
        assert!(matches!(asked, Code::InvalidArgument | Code::NotFound), "{asked:?}");
        let asked = client.node_expand(&node.id, path, MIB).await.err().unwrap().code();
        assert!(matches!(asked, Code::InvalidArgument | Code::NotFound), "{asked:?}");
    }
    node.unstage().await.unwrap();
}

/// One volume inside another is the caller's business, as long as they come off in order.
#[tokio::test(flavor = "multi_thread")]
async fn target_inside_another_volume_keeps_it_busy() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let outer = staged(&client, "outer").await;
    outer.publish().await.unwrap();
    let inner = staged(&client, "inner").await;
    let within = outer.target.join("inner");
    inner.publish_at(&within, false).await.unwrap();
    Pattern::new(1).write(&within.join("data"), MIB);

    expect_code(outer.unpublish().await, Code::FailedPrecondition);
    Pattern::new(1).check(&within.join("data"), MIB);
    // On the same path: taken.
    expect_code(outer.publish_at(&within, false).await, Code::FailedPrecondition);
    inner.unpublish_at(&within).await.unwrap();
    assert!(!within.exists());
    inner.unstage().await.unwrap();
    outer.down().await;
}
