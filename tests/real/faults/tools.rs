//! A tool that is not there, or does not end.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_sys::tool;
use orlop_tests::*;

use crate::{PATIENCE, run};

const VOLUME: u64 = 320 * MIB;

/// The daemon alone sees the change: it has a view of the mounts of its own.
struct Covered {
    daemon: Daemon,
    mkfs: PathBuf,
}

impl Covered {
    async fn start(pool: &TestPool) -> Self {
        let daemon = Launch::on(pool).run_by(&["/usr/bin/unshare", "--mount"]).start().await;
        let mkfs = tool::find("mkfs.xfs").expect("mkfs.xfs is installed").canonicalize().unwrap();
        Self { daemon, mkfs }
    }

    fn inside(&self, command: &[&str]) {
        let target = format!("--target={}", self.daemon.pid());
        let words = [&["--mount", target.as_str(), "--"], command].concat();
        run("nsenter", &words);
    }

    fn cover(&self, by: &str) {
        self.inside(&["mount", "--bind", by, self.mkfs.to_str().unwrap()]);
    }

    fn uncover(&self) {
        self.inside(&["umount", self.mkfs.to_str().unwrap()]);
    }
}

/// With options of its own a volume is not born with its filesystem.
fn blank(client: &Client, name: &str) -> Create {
    client.create(name).size(VOLUME).fs("xfs").parameter("mkfsOptions", "-L blank")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_cannot_be_run() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let covered = Covered::start(&pool).await;
    let client = covered.daemon.client();
    let volume = blank(&client, "volume").done().await;
    let node = client.on_node(&volume, mount("xfs"));
    covered.cover("/dev/null");
    let status = node.stage().await.unwrap_err();
    assert!(status.message().contains("mkfs.xfs"), "{status}");
    assert_eq!(status.code(), Code::Internal, "{status}");
    assert_eq!(covered.daemon.leaks(), [""; 0]);
    expect_code(client.probe().await, Code::FailedPrecondition);
    // What needs no such tool goes on.
    let raw = client.create("raw").size(VOLUME).block().done().await;
    let raw = client.on_node(&raw, block());
    raw.stage().await.unwrap();
    raw.unstage().await.unwrap();

    covered.uncover();
    assert!(client.probe().await.unwrap());
    node.stage().await.unwrap();
    node.unstage().await.unwrap();
}

/// It is waited for, as what it writes cannot be taken back half-way. That holds up its own volume
/// and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_hangs() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let covered = Covered::start(&pool).await;
    let client = covered.daemon.client();
    let volume = blank(&client, "volume").done().await;
    let node = client.on_node(&volume, mount("xfs"));
    let [real, script, started, go] =
        ["real", "script", "started", "go"].map(|name| pool.scratch().join(name));
    std::fs::copy(&covered.mkfs, &real).unwrap();
    let text = format!(
        "#!/bin/sh\n>{}\nwhile [ ! -e {} ]; do sleep 0.02; done\nexec {} \"$@\"\n",
        started.display(),
        go.display(),
        real.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    covered.cover(script.to_str().unwrap());

    let staging = tokio::spawn({
        let node = node.clone();
        async move { node.stage().await }
    });
    let deadline = Instant::now() + PATIENCE;
    while !started.exists() {
        assert!(Instant::now() < deadline, "mkfs is not started");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The caller's patience ends; the work does not.
    staging.abort();
    expect_code(node.stage().await, Code::Aborted);
    expect_code(client.delete(&node.id).await, Code::Aborted);
    assert!(client.probe().await.unwrap());
    assert!(!crate::is_abnormal(&client, &node.id).await);
    let raw = client.create("raw").size(VOLUME).block().done().await;
    let raw = client.on_node(&raw, block());
    raw.stage().await.unwrap();
    raw.unstage().await.unwrap();

    std::fs::write(&go, "").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while let Err(status) = node.stage().await {
        assert_eq!(status.code(), Code::Aborted, "{status}");
        assert!(Instant::now() < deadline, "it is not staged");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.unstage().await.unwrap();
    covered.uncover();
}
