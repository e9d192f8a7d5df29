//! A Ceph cluster on loopback, started for tests and gone with them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use orlop_sys::ceph::{Cluster, ClusterConfig, IoCtx};
use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::Daemon;
use crate::launch::Launch;
use crate::scratch::Scratch;

const TIMEOUT: Duration = Duration::from_secs(60);

/// One monitor, one manager, object stores in memory or in files.
pub struct TestCeph {
    directory: PathBuf,
    /// Of a cluster that one test has to itself.
    own: Option<Scratch>,
}

impl TestCeph {
    /// For all tests of a binary. Statics are never dropped, so the cluster watches the
    /// process itself.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TestCeph> = OnceLock::new();
        SHARED.get_or_init(|| {
            let process = std::process::id().to_string();
            let directory = std::env::temp_dir().join(format!("orlop-ceph.{process}"));
            script(&["start", text(&directory), "--while", &process]);
            Self { directory, own: None }
        })
    }

    /// Three object stores that keep what they have acknowledged when they are killed.
    pub fn durable() -> Self {
        let scratch = Scratch::new();
        let directory = scratch.join("ceph");
        script(&["start", text(&directory), "--osds", "3", "--store", "bluestore"]);
        Self { directory, own: Some(scratch) }
    }

    /// One object store that keeps what it has acknowledged.
    pub fn small() -> Self {
        let scratch = Scratch::new();
        let directory = scratch.join("ceph");
        script(&["start", text(&directory), "--store", "bluestore"]);
        Self { directory, own: Some(scratch) }
    }

    pub fn keyring(&self) -> PathBuf {
        self.directory.join("client.orlop.keyring")
    }

    pub fn monitors(&self) -> String {
        let conf = std::fs::read_to_string(self.conf()).expect("read ceph.conf");
        let line = conf.lines().find_map(|line| line.strip_prefix("mon_host = "));
        line.expect("the monitors in ceph.conf").to_owned()
    }

    fn conf(&self) -> PathBuf {
        self.directory.join("ceph.conf")
    }

    /// A daemon with two pools: `ceph`, on which operations are given up after so many seconds, and
    /// `local`, a directory.
    pub fn launch_beside_a_directory(&self, node: &str, timeout_seconds: u32) -> Launch {
        let scratch = Scratch::new();
        let settings = scratch.join("orlop.toml");
        let (directory, keyring) = (scratch.ensure_dir("pool"), self.keyring());
        let pools = format!(
            "[[pool]]\nname = \"local\"\npath = \"{}\"\n[[pool]]\nname = \"ceph\"\nkind = \"rbd\"\n\
             monitors = \"{}\"\nkeyring = \"{}\"\ntimeout_seconds = {timeout_seconds}\n",
            text(&directory),
            self.monitors(),
            text(&keyring),
        );
        std::fs::write(&settings, pools).expect("write the settings");
        Launch::in_scratch(scratch).env("ORLOP_NODE_ID", node).arg("--config").arg(settings)
    }

    /// A daemon in a separate directory, as if it were on a separate machine.
    pub fn launch(&self, node: &str, mode: &str) -> Launch {
        Launch::in_scratch(Scratch::new())
            .env("ORLOP_POOL_KIND", "rbd")
            .env("ORLOP_RBD_MONITORS", self.monitors())
            .env("ORLOP_RBD_KEYRING", self.keyring())
            .env("ORLOP_NODE_ID", node)
            .env("ORLOP_MODE", mode)
    }

    pub async fn controller(&self, name: &str) -> Daemon {
        self.launch(name, "controller").start().await
    }

    pub async fn node(&self, name: &str) -> Daemon {
        self.launch(name, "node").start().await
    }

    /// What the command line of RBD says, which knows nothing of Orlop.
    pub fn rbd(&self, arguments: &[&str]) -> String {
        let conf = self.conf();
        let words: Vec<_> = ["--conf", text(&conf)].iter().chain(arguments).copied().collect();
        String::from_utf8(run(Path::new("/usr/bin/rbd"), &words).stdout).expect("text")
    }

    /// As the cluster's administrator.
    pub fn ceph(&self, arguments: &[&str]) -> String {
        let conf = self.conf();
        let words: Vec<_> = ["--conf", text(&conf)].iter().chain(arguments).copied().collect();
        String::from_utf8(run(Path::new("/usr/bin/ceph"), &words).stdout).expect("text")
    }

    /// All objects of a namespace.
    pub fn objects(&self, namespace: &str) -> Vec<String> {
        let conf = self.conf();
        let words = ["--conf", text(&conf), "--pool", "rbd", "--namespace", namespace, "ls"];
        let listed = String::from_utf8(run(Path::new("/usr/bin/rados"), &words).stdout);
        listed.expect("text").lines().map(str::to_owned).collect()
    }

    pub fn remove_object(&self, namespace: &str, object: &str) {
        let conf = self.conf();
        let words =
            ["--conf", text(&conf), "--pool", "rbd", "--namespace", namespace, "rm", object];
        run(Path::new("/usr/bin/rados"), &words);
    }

    /// Past Orlop, right into the cluster.
    pub fn io(&self, namespace: &str) -> Arc<IoCtx> {
        let config = ClusterConfig {
            monitors: self.monitors(),
            user: "orlop".to_owned(),
            keyring: self.keyring(),
            connect_timeout: TIMEOUT,
            operation_timeout: TIMEOUT,
        };
        let cluster = Cluster::connect(&config).expect("connect");
        cluster.pool("rbd", namespace).expect("open the pool")
    }

    pub fn images(&self) -> Vec<String> {
        self.rbd(&["ls"]).lines().map(str::to_owned).collect()
    }

    /// kill -9 of `mon.a`, `mgr.x`, or `osd.0` and so on.
    pub fn kill(&self, daemon: &str) {
        let file = self.directory.join(format!("{daemon}.pid"));
        let number = std::fs::read_to_string(file).expect("a pid file");
        let pid = number.trim().parse().ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::KILL).expect("kill a daemon of the cluster");
    }

    /// kill -9 of all of a [`Self::small`] cluster, which is back when the guard is dropped.
    pub fn take_down(&self) -> ClusterOutage<'_> {
        ["mon.a", "mgr.x", "osd.0"].into_iter().for_each(|part| self.kill(part));
        ClusterOutage { ceph: self }
    }

    /// Starts again what was killed, and waits until it serves.
    pub fn revive(&self) {
        script(&["revive", text(&self.directory)]);
    }
}

/// A cluster that is away. Standing still (SIGSTOP) is not the same: a store that slept for longer than
/// its leases may never serve all of its data again.
pub struct ClusterOutage<'a> {
    ceph: &'a TestCeph,
}

impl Drop for ClusterOutage<'_> {
    fn drop(&mut self) {
        // Also for a test that has failed: what it used cannot be taken down while it waits.
        let revived = try_script(&["revive", text(&self.ceph.directory)]);
        assert!(revived.status.success() || std::thread::panicking(), "{revived:?}");
    }
}

impl Drop for TestCeph {
    fn drop(&mut self) {
        if self.own.is_some() {
            script(&["stop", text(&self.directory)]);
        }
    }
}

fn script(arguments: &[&str]) {
    let output = try_script(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn try_script(arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/ceph-cluster");
    try_run(&script, arguments)
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let output = try_run(program, arguments);
    assert!(
        output.status.success(),
        "{} {arguments:?}: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[expect(clippy::disallowed_methods, reason = "what tests compare with is no host tool")]
fn try_run(program: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}
