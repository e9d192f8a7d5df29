//! A demo that runs, and a look at what is left of it.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orlop_tests::*;
use rustix::process::{Pid, Signal, kill_process};

pub(super) const SIZE: &str = "16MiB";
const TIMEOUT: Duration = Duration::from_secs(120);

/// Where demos make their directories.
pub(super) struct Play {
    directory: Daemon,
    /// Suffixes of its demos, which are in the names of their cgroups.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Play {
    pub(super) fn new() -> Self {
        Self { directory: Launch::without_pool().idle(), seen: Arc::default() }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.launch().scratch().path().to_owned()
    }

    pub(super) fn begin(&self, words: &[&str]) -> Demo {
        self.begin_by(&[], words)
    }

    /// `before` are words before the binary.
    #[expect(clippy::disallowed_methods, reason = "the binary under test is no host tool")]
    pub(super) fn begin_by(&self, before: &[&str], words: &[&str]) -> Demo {
        let binary = binary();
        let all: Vec<_> =
            before.iter().map(|word| (*word).into()).chain([binary.into_os_string()]).collect();
        // Variables of a daemon of this machine, which the demo must not use.
        let mut child = Command::new(&all[0])
            .args(&all[1..])
            .arg("demo")
            .args(words)
            .env("TMPDIR", self.path())
            .env("ORLOP_POOL", "/nonexistent")
            .env("CSI_ENDPOINT", "unix:///nonexistent/csi.sock")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Demo { child, lines, read: String::new(), seen: Arc::clone(&self.seen) }
    }

    pub(super) fn run(&self, words: &[&str]) -> Ran {
        let launch = self.directory.launch().clone();
        launch.without_env("CSI_ENDPOINT").without_env("ORLOP_RUN_DIR").run(words)
    }

    pub(super) fn devices_and_mounts(&self) -> Vec<String> {
        self.directory.leaks()
    }

    /// Directories of demos.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_string_lossy().contains("orlop-demo.")).collect()
    }

    /// Processes that name the directory, such as daemons and writers of a demo.
    pub(super) fn processes(&self) -> Vec<String> {
        let named = self.path().join("orlop-demo.").to_string_lossy().into_owned();
        let lines = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&words).replace('\0', " "))
        });
        lines.filter(|line| line.contains(&named)).collect()
    }

    fn cgroups(&self) -> Vec<PathBuf> {
        let below = |root: &str| std::fs::read_dir(root).into_iter().flatten().flatten();
        let groups =
            ["/sys/fs/cgroup", "/sys/fs/cgroup/blkio", "/sys/fs/cgroup/unified"].map(below);
        let paths = groups.into_iter().flatten().map(|entry| entry.path());
        let seen = self.seen.lock().unwrap();
        paths
            .filter(|path| seen.iter().any(|suffix| path.ends_with(format!("orlop-demo-{suffix}"))))
            .collect()
    }

    #[track_caller]
    pub(super) fn assert_nothing_is_left(&self) {
        assert_eq!(self.devices_and_mounts(), [""; 0]);
        assert_eq!(self.processes(), [""; 0]);
        assert_eq!(self.directories(), Vec::<PathBuf>::new());
        assert_eq!(self.cgroups(), Vec::<PathBuf>::new());
    }
}

/// Killed when dropped.
pub(super) struct Demo {
    child: Child,
    lines: BufReader<ChildStdout>,
    read: String,
    seen: Arc<Mutex<Vec<String>>>,
}

pub(super) struct DemoEnded {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Demo {
    /// Reads on to the line that holds this text.
    pub(super) fn until(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let length = self.lines.read_line(&mut line).unwrap();
            if length == 0 {
                let mut why = String::new();
                self.child.stderr.as_mut().unwrap().read_to_string(&mut why).unwrap();
                panic!("it ended before {text:?}:\n{}{why}", self.read);
            }
            self.note(&line);
            if line.contains(text) {
                return line;
            }
        }
    }

    fn note(&mut self, line: &str) {
        self.read.push_str(line);
        if let Some((_, rest)) = line.split_once("orlop-demo.") {
            self.seen.lock().unwrap().push(rest.chars().take(8).collect());
        }
    }

    pub(super) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn wait_for_end(mut self) -> DemoEnded {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        self.note(&rest);
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "the demo does not end"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let stdout = std::mem::take(&mut self.read);
        DemoEnded { code: status.code().unwrap_or(-1), stdout, stderr }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
