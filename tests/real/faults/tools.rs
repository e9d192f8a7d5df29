//! A tool that is not there, or does not end.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_sys::tool;
use orlop_tests::*;

use crate::faults::{TIMEOUT, run};

const VOLUME: u64 = 320 * MIB;

/// The daemon alone sees the change: it runs in a separate mount namespace.
pub(super) struct Covered {
    pub(super) daemon: Daemon,
    tool: PathBuf,
}

impl Covered {
    async fn start(pool: &TestPool) -> Self {
        Self::start_by(Launch::on(pool), "mkfs.xfs").await
    }

    pub(super) async fn start_by(launch: Launch, name: &str) -> Self {
        let daemon = launch.with_own_mounts().start().await;
        let tool = tool::find(name).expect("the tool is installed").canonicalize().unwrap();
        Self { daemon, tool }
    }

    fn inside(&self, command: &[&str]) {
        let target = format!("--target={}", self.daemon.pid());
        let words = [&["--mount", target.as_str(), "--"], command].concat();
        run("nsenter", &words);
    }

    fn cover(&self, by: &str) {
        self.inside(&["mount", "--bind", by, self.tool.to_str().unwrap()]);
    }

    pub(super) fn uncover(&self) {
        self.inside(&["umount", self.tool.to_str().unwrap()]);
    }

    /// From now on mkfs waits before it does anything.
    fn hold_mkfs(&self, pool: &TestPool) -> HeldMkfs {
        let [started, go] = ["started", "go"].map(|name| pool.scratch().join(name));
        self.cover_by_script(pool, |real| {
            format!(
                "echo $$ >{0}.new\nmv {0}.new {0}\n\
                 while [ ! -e {1} ]; do sleep 0.02; done\nexec {real} \"$@\"",
                started.display(),
                go.display(),
            )
        });
        HeldMkfs { started, go }
    }

    /// `text` gets the path at which the tool itself still is.
    pub(super) fn cover_by_script(&self, pool: &TestPool, text: impl FnOnce(&str) -> String) {
        let [real, script] = ["real", "script"].map(|name| pool.scratch().join(name));
        std::fs::copy(&self.tool, &real).unwrap();
        let text = format!("#!/bin/sh\n{}\n", text(real.to_str().unwrap()));
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.cover(script.to_str().unwrap());
    }
}

struct HeldMkfs {
    started: PathBuf,
    go: PathBuf,
}

impl HeldMkfs {
    /// The process it runs in.
    async fn wait_for_start(&self) -> u32 {
        let deadline = Instant::now() + TIMEOUT;
        while !self.started.exists() {
            assert!(Instant::now() < deadline, "mkfs is not started");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::read_to_string(&self.started).unwrap().trim().parse().unwrap()
    }

    fn let_go(&self) {
        std::fs::write(&self.go, "").unwrap();
    }
}

/// With mkfs options a volume is not created from a template.
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
    assert_eq!(client.failed_probe().await.code(), Code::FailedPrecondition);
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
    let mkfs = covered.hold_mkfs(&pool);

    let staging = tokio::spawn({
        let node = node.clone();
        async move { node.stage().await }
    });
    mkfs.wait_for_start().await;
    // The caller's patience ends; the work does not.
    staging.abort();
    expect_code(node.stage().await, Code::Aborted);
    expect_code(client.delete(&node.id).await, Code::Aborted);
    assert!(client.probe().await.unwrap());
    assert!(!crate::faults::is_abnormal(&client, &node.id).await);
    let raw = client.create("raw").size(VOLUME).block().done().await;
    let raw = client.on_node(&raw, block());
    raw.stage().await.unwrap();
    raw.unstage().await.unwrap();

    mkfs.let_go();
    let deadline = Instant::now() + TIMEOUT;
    while let Err(status) = node.stage().await {
        assert_eq!(status.code(), Code::Aborted, "{status}");
        assert!(Instant::now() < deadline, "it is not staged");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.unstage().await.unwrap();
    covered.uncover();
}

/// A daemon that is killed leaves its mkfs behind, which may yet write. The next one waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_outlives_its_daemon() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let mut covered = Covered::start(&pool).await;
    let volume = blank(&covered.daemon.client(), "volume").done().await;
    let node = covered.daemon.client().on_node(&volume, mount("xfs"));
    let mkfs = covered.hold_mkfs(&pool);
    let staging = tokio::spawn({
        let node = node.clone();
        async move { node.stage().await }
    });
    let orphan = mkfs.wait_for_start().await;
    covered.daemon.kill9();
    staging.await.unwrap().unwrap_err();

    // In its own view of the mounts mkfs is as it was. If the device were detached, its number would
    // be the next volume's, which is not what mkfs was started for.
    covered.daemon.restart().await;
    expect_code(node.unstage().await, Code::Aborted);
    let staging = tokio::spawn({
        let node = node.clone();
        async move { node.stage().await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!staging.is_finished(), "not while mkfs is still to come");
    mkfs.let_go();
    // On a busy machine mkfs may take longer than a call waits for it.
    let deadline = Instant::now() + TIMEOUT;
    let mut staged = staging.await.unwrap();
    while staged.as_ref().is_err_and(|status| status.code() == Code::Aborted) {
        assert!(Instant::now() < deadline, "{staged:?}");
        staged = node.stage().await;
    }
    staged.unwrap();
    let program = std::fs::read_link(format!("/proc/{orphan}/exe"));
    assert!(program.is_err(), "{program:?} is still at work on a volume that is in use");
    node.unstage().await.unwrap();
}
