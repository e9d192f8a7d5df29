//! How the process under test is started.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::daemon::{Daemon, wait};
use crate::mount_holder::DROP_ALL_BUT;
use crate::pool::TestPool;
use crate::scratch::Scratch;

/// How a daemon is to be started.
#[derive(Clone)]
pub struct Launch {
    scratch: Scratch,
    pub(crate) fixtures: Vec<PathBuf>,
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
        let mut daemon = self.idle();
        daemon.restart().await;
        daemon
    }

    /// To be started by [`Daemon::restart`] or [`Daemon::try_restart`].
    pub fn idle(self) -> Daemon {
        Daemon::idle(self)
    }

    /// For a start that is to fail: its status and what it printed.
    pub fn run_to_end(&self) -> Ended {
        let mut child = self.spawn();
        let status = wait(&mut child).unwrap_or_else(|| {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the daemon was to end, but runs:\n{}", self.log_end());
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
    pub fn begin(&self, words: &[&str], output: &Path) -> Running {
        self.begin_with(words, output, Stdio::null())
    }

    /// As [`Self::begin`], with its standard error at `errors`.
    pub fn begin_with_errors(&self, words: &[&str], output: &Path, errors: &Path) -> Running {
        let errors = File::create(errors).expect("create the file for errors");
        self.begin_with(words, output, errors.into())
    }

    #[expect(clippy::disallowed_methods, reason = "the binary under test is no host tool")]
    fn begin_with(&self, words: &[&str], output: &Path, errors: Stdio) -> Running {
        let output = File::options().append(true).open(output).expect("open the output");
        let child = Command::new(binary())
            .args(words)
            .env_clear()
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
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

    /// For a test that fails: the cause is at the end, between frames of HTTP/2.
    pub fn log_end(&self) -> String {
        const LINES: usize = 40;
        let log = self.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains(" DEBUG ")).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    #[expect(clippy::disallowed_methods, reason = "the binary under test is no host tool")]
    pub(crate) fn spawn(&self) -> Child {
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

    /// It has to end by itself.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        wait(&mut self.0).expect("the command ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
