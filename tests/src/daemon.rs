//! The process under test.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;
use crate::leaks;
use crate::mount_holder::DROP_ALL_BUT;
use crate::pool::TestPool;
use crate::scratch::Scratch;

/// Far more than anything here takes; reached only by a daemon that hangs.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(3);
const LONGEST_LOG: usize = 200;

/// How a daemon is to be started.
#[derive(Clone)]
pub struct Launch {
    scratch: Scratch,
    fixtures: Vec<PathBuf>,
    variables: Vec<(OsString, OsString)>,
    command: Vec<OsString>,
}

impl Launch {
    /// With its own socket, run directory and node id, on the given pool.
    pub fn on(pool: &TestPool) -> Self {
        let mut launch = Self::in_scratch(pool.scratch().clone()).env("ORLOP_POOL", &pool.path);
        launch.fixtures = pool.fixtures();
        launch
    }

    /// A router, which has none.
    pub fn without_pool() -> Self {
        Self::in_scratch(Scratch::new())
    }

    /// On several pools, which lie in one scratch directory: each with its name and what else of
    /// TOML is said of it.
    pub fn on_several(pools: &[(&str, &TestPool, &str)]) -> Self {
        let scratch = pools[0].1.scratch().clone();
        let settings = scratch.join("orlop.toml");
        let table = |(name, pool, more): &(&str, &TestPool, &str)| {
            format!("[[pool]]\nname = \"{name}\"\npath = \"{}\"\n{more}\n", pool.path.display())
        };
        let tables: String = pools.iter().map(table).collect();
        std::fs::write(&settings, tables).expect("write the settings");
        let mut launch = Self::in_scratch(scratch).arg("--config").arg(settings);
        launch.fixtures = pools.iter().flat_map(|(_, pool, _)| pool.fixtures()).collect();
        launch
    }

    /// What the test itself mounts in the scratch directory, and is no leak.
    pub fn with_fixtures(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.fixtures.extend(paths);
        self
    }

    /// As [`Self::on`], but without a pool.
    pub(crate) fn in_scratch(scratch: Scratch) -> Self {
        let socket = format!("unix://{}", scratch.join("csi.sock").display());
        let run_dir = scratch.join("run");
        let launch = Self {
            fixtures: Vec::new(),
            variables: Vec::new(),
            command: vec![binary().into(), "serve".into()],
            scratch,
        };
        launch
            .env("CSI_ENDPOINT", socket)
            .env("ORLOP_RUN_DIR", run_dir)
            .env("ORLOP_NODE_ID", "test-node")
            .env("ORLOP_LOG", "debug")
    }

    /// Sets a variable, in place of what it was before.
    pub fn env(self, name: &str, value: impl Into<OsString>) -> Self {
        let mut launch = self.without_env(name);
        launch.variables.push((name.into(), value.into()));
        launch
    }

    pub fn without_env(mut self, name: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self
    }

    /// Arguments after `orlop serve`.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.command.push(argument.into());
        self
    }

    /// Words before the binary, such as `setpriv --nnp`; the first is an absolute path.
    pub fn run_by(mut self, words: &[&str]) -> Self {
        self.command.splice(0..0, words.iter().map(OsString::from));
        self
    }

    /// In a new mount namespace, with none of the mounts of other tests.
    pub fn with_own_mounts(self) -> Self {
        let script = format!("{DROP_ALL_BUT}\ndrop_all_but \"$0\"; exec \"$@\"");
        let scratch = self.scratch.path().to_str().expect("paths of tests are text").to_owned();
        self.run_by(&["/usr/bin/unshare", "--mount", "/bin/sh", "-c", &script, &scratch])
    }

    pub async fn start(self) -> Daemon {
        let child = self.spawn();
        let daemon = Daemon { child: Some(child), launch: self };
        daemon.until_ready().await
    }

    /// To be started by [`Daemon::restart`] or [`Daemon::try_restart`].
    pub fn idle(self) -> Daemon {
        Daemon { child: None, launch: self }
    }

    /// For a start that is to fail: its status and what it printed.
    pub fn run_to_end(&self) -> Ended {
        let mut child = self.spawn();
        let status = wait(&mut child).unwrap_or_else(|| {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the daemon was to end, but runs:\n{}", self.log());
        });
        Ended { status, output: self.log() }
    }

    /// Runs `orlop` with other arguments than `serve`, in the same surroundings.
    pub fn run(&self, words: &[&str]) -> Ran {
        #[expect(clippy::disallowed_methods, reason = "the binary under test is no host tool")]
        let output = Command::new(binary())
            .args(words)
            .env_clear()
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .output()
            .expect("run orlop");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("orlop prints text");
        Ran { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Begins to run `orlop` with other arguments than `serve`, with its standard output at `output`.
    #[expect(clippy::disallowed_methods, reason = "the binary under test is no host tool")]
    pub fn begin(&self, words: &[&str], output: &Path) -> Running {
        let output = File::options().append(true).open(output).expect("open the output");
        let child = Command::new(binary())
            .args(words)
            .env_clear()
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .expect("run orlop");
        Running(child)
    }

    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub fn socket(&self) -> PathBuf {
        let (_, endpoint) = self
            .variables
            .iter()
            .find(|(name, _)| name == "CSI_ENDPOINT")
            .expect("an endpoint is set");
        let endpoint = endpoint.to_str().expect("the endpoint is text");
        PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint))
    }

    pub fn log_path(&self) -> PathBuf {
        self.scratch.join("daemon.log")
    }

    /// All that daemons of this test printed so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "the binary under test is no host tool")]
    fn spawn(&self) -> Child {
        let log =
            File::options().create(true).append(true).open(self.log_path()).expect("open the log");
        let [program, arguments @ ..] = self.command.as_slice() else {
            panic!("an empty command");
        };
        // TMPDIR tells whose process this is, should it outlive the test.
        let temporary = std::env::var_os("TMPDIR").map(|value| ("TMPDIR".into(), value));
        Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(temporary.iter().chain(&self.variables).cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share the log"))
            .stderr(log)
            .spawn()
            .expect("start the daemon")
    }
}

/// Cargo puts test binaries into `deps`, beside which the daemon's binary is; other binaries lie
/// beside it themselves.
pub fn binary() -> PathBuf {
    let this = std::env::current_exe().expect("the path of this program");
    let beside = this.ancestors().skip(1).take(2).map(|directory| directory.join("orlop"));
    let found = beside.into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("no orlop beside {}; build it first: cargo build -p orlop", this.display())
    })
}

/// A daemon that ended by itself.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A command that was begun. Killed when it is dropped.
pub struct Running(Child);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("look at a command").is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Daemon {
    child: Option<Child>,
    launch: Launch,
}

impl Daemon {
    pub async fn start(pool: &TestPool) -> Self {
        Launch::on(pool).start().await
    }

    /// Connects at the first call, and again after a restart.
    pub fn client(&self) -> Client {
        Client::new(&self.launch.socket(), self.launch.scratch.clone())
    }

    /// Of another socket than the one of `CSI_ENDPOINT`.
    pub fn client_at(&self, socket: &Path) -> Client {
        Client::new(socket, self.launch.scratch.clone())
    }

    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    pub fn log(&self) -> String {
        self.launch.log()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running daemon").id()
    }

    /// As if the machine's memory had run out: no clean-up of any kind.
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("a running daemon");
        child.kill().expect("kill the daemon");
        child.wait().expect("wait for the daemon");
    }

    /// Its machine goes down and does not come back: nothing of it is left there.
    pub fn lose_machine(&mut self) {
        self.kill9();
        leaks::remove_all_but(self.launch.scratch.path(), &self.launch.fixtures);
    }

    /// Its machine loses power and comes back: mounts, devices and the run directory are gone.
    pub async fn reboot_machine(&mut self) {
        self.lose_machine();
        let run = self.launch.scratch.join("run");
        std::fs::rename(&run, run.with_extension("before")).expect("put the run directory away");
        self.restart().await;
    }

    /// SIGTERM; the daemon must end well and take its socket with it.
    pub fn terminate(&mut self) {
        self.stop(Signal::TERM);
    }

    pub fn stop(&mut self, signal: Signal) {
        let mut child = self.child.take().expect("a running daemon");
        send(&child, signal);
        let Some(status) = wait(&mut child) else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the daemon does not end");
        };
        assert_eq!(status.code(), Some(0), "the daemon failed while it stopped");
        let socket = self.launch.socket();
        assert!(!socket.exists(), "{} was left", socket.display());
    }

    /// Sends a signal and does not wait.
    pub fn signal(&self, signal: Signal) {
        send(self.child.as_ref().expect("a running daemon"), signal);
    }

    /// Waits for an end that was asked for by [`Self::signal`].
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a running daemon");
        match wait(&mut child) {
            Some(status) => status,
            None => {
                self.child = Some(child);
                panic!("the daemon does not end");
            }
        }
    }

    /// A successor, started as this one was; if this one still runs, it is terminated first.
    pub async fn restart(&mut self) {
        if self.child.is_some() {
            self.terminate();
        }
        self.start_again();
        self.wait_until_ready().await;
    }

    /// A successor that may end before it is ready, for the predecessor's end was asked for.
    pub async fn try_restart(&mut self) -> Option<ExitStatus> {
        assert!(self.child.is_none(), "the predecessor still runs");
        self.child = Some(self.launch.spawn());
        self.ready_or_ended().await
    }

    /// A successor that is not waited for, as it may not get ready.
    pub fn start_again(&mut self) {
        self.child = Some(self.launch.spawn());
    }

    /// A successor of one that was sent a signal and cannot end: a thread of it waits in the kernel.
    pub fn start_beside(&mut self) -> Predecessor {
        let child = self.child.replace(self.launch.spawn());
        Predecessor(child.expect("a running daemon"))
    }

    /// To the processes that show images to this daemon's machine.
    pub fn signal_exporters(&self, signal: Signal) {
        let exporters = leaks::exporters(self.launch.scratch.path());
        assert!(!exporters.is_empty(), "nothing is exported");
        for exporter in exporters {
            kill_process(exporter, signal).expect("send a signal to an exporter");
        }
    }

    /// kill -9 of the processes that show images to this daemon's machine, and waits for their end.
    pub fn kill_exporters(&self) {
        let ground = self.launch.scratch.path();
        let exporters = leaks::exporters(ground);
        assert!(!exporters.is_empty(), "nothing is exported");
        for exporter in exporters {
            let _ = kill_process(exporter, Signal::KILL);
        }
        let deadline = Instant::now() + PATIENCE;
        while !leaks::exporters(ground).is_empty() {
            assert!(Instant::now() < deadline, "exporters do not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Loop devices and mounts of this test that are there now, but for the pool's own.
    pub fn leaks(&self) -> Vec<String> {
        leaks::describe(self.launch.scratch.path(), &self.launch.fixtures)
    }

    /// As [`Self::leaks`], without a look at every process of the machine.
    pub fn devices_and_mounts(&self) -> Vec<String> {
        leaks::devices_and_mounts(self.launch.scratch.path(), &self.launch.fixtures)
    }

    async fn until_ready(mut self) -> Self {
        self.wait_until_ready().await;
        self
    }

    async fn wait_until_ready(&mut self) {
        if let Some(status) = self.ready_or_ended().await {
            panic!("the daemon ended at its start: {status}");
        }
    }

    /// `None` once it is ready.
    async fn ready_or_ended(&mut self) -> Option<ExitStatus> {
        let client = self.client();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let child = self.child.as_mut().expect("a running daemon");
            if let Some(status) = child.try_wait().expect("look at the daemon") {
                self.child = None;
                return Some(status);
            }
            if client.probe().await.is_ok_and(|ready| ready) {
                return None;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        panic!("the daemon is not ready after {PATIENCE:?}");
    }

    fn ensure_ended(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        send(&child, Signal::TERM);
        if wait(&mut child).is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn print_log(&self) {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let first = lines.len().saturating_sub(LONGEST_LOG);
        eprintln!("--- the daemon's log\n{}\n---", lines[first..].join("\n"));
    }
}

/// A daemon that ends when the kernel lets it.
pub struct Predecessor(Child);

impl Predecessor {
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("look at a daemon").is_some()
    }

    pub fn wait_for_end(mut self) -> ExitStatus {
        wait(&mut self.0).expect("the former daemon does not end")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.ensure_ended();
        let left = self.leaks();
        leaks::remove_all_but(self.launch.scratch.path(), &self.launch.fixtures);
        if std::thread::panicking() {
            self.print_log();
        } else if !left.is_empty() {
            self.print_log();
            panic!("left behind:\n{}", left.join("\n"));
        }
    }
}

fn send(child: &Child, signal: Signal) {
    // Not waited for yet, so the number cannot have gone to another process.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = kill_process(pid.expect("a process id"), signal);
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("wait for the daemon") {
            return Some(status);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    None
}

#[cfg(test)]
mod tests;
