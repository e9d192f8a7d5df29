//! A driver that the benchmark runs itself.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orlop_tests::{Client, Scratch};
use rustix::process::{Pid, Signal, kill_process};

/// Reached only by a driver that hangs.
const TIMEOUT: Duration = Duration::from_secs(120);
/// What a start is measured in.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
const LOG_LINES: usize = 40;
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) struct Process {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(&'static str, OsString)>,
    pub(crate) socket: PathBuf,
    pub(crate) log: PathBuf,
    child: Option<Child>,
}

impl Process {
    pub(crate) fn new(program: &Path, socket: &Path, log: PathBuf) -> Self {
        let (program, socket) = (program.to_owned(), socket.to_owned());
        Self { program, arguments: Vec::new(), variables: Vec::new(), socket, log, child: None }
    }

    pub(crate) fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// From the start of the process to its first answer that it is ready.
    pub(crate) async fn start(&mut self, scratch: &Scratch) -> Duration {
        let began = Instant::now();
        self.child = Some(self.spawn());
        loop {
            self.check_running(began);
            // Cheaper to ask than gRPC, which waits longer and longer between its attempts.
            if UnixStream::connect(&self.socket).is_ok() {
                let client = Client::new(&self.socket, scratch.clone());
                if client.probe().await.is_ok_and(|ready| ready) {
                    return began.elapsed();
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a driver that is measured is no host tool")]
    fn spawn(&self) -> Child {
        let log = File::options().create(true).append(true).open(&self.log).expect("open the log");
        // TMPDIR tells whose process this is, should it outlive the benchmark.
        let temporary = std::env::var_os("TMPDIR").map(|value| ("TMPDIR", value));
        Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .envs(temporary.iter().chain(&self.variables).cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share the log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", self.program.display()))
    }

    fn check_running(&mut self, began: Instant) {
        let child = self.child.as_mut().expect("a process that was started");
        if let Some(status) = child.try_wait().expect("look at the driver") {
            self.child = None;
            panic!(
                "{} ended at its start: {status}\n{}",
                self.program.display(),
                self.last_lines()
            );
        }
        assert!(began.elapsed() < TIMEOUT, "{} is not ready", self.program.display());
    }

    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // Not waited for yet, so the number cannot have gone to another process.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        let _ = kill_process(pid, Signal::TERM);
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if child.try_wait().expect("wait for the driver").is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Resident now, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        resident(self.pid())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running driver").id()
    }

    pub(crate) fn binary_size(&self) -> u64 {
        std::fs::metadata(&self.program).expect("look at the program").len()
    }

    fn last_lines(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("--- the end of what {} said", self.program.display());
            eprintln!("{}", self.last_lines());
        }
    }
}

pub(crate) fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("read its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.expect("the resident memory") * 1024
}
