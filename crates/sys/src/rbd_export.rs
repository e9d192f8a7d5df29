//! An RBD image as a file, by a FUSE export of qemu-storage-daemon.
//!
//! Everything of one export is in its own directory: the file that it shows, its
//! configuration, its log, the number of its process. The process is its own session and a child
//! of no daemon, so it outlives the one that started it and is found again by what is in the directory.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{Context, Result};
use crate::{file, mounts, tool};

const PROGRAM: &str = "qemu-storage-daemon";
/// For the export to release its lock, which is a write, and waits while the cluster is full.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST_LOG: u64 = 1 << 20;
/// Up to three processes are found, one in each attempt, and an attempt in between may find none.
const KILL_ATTEMPTS: usize = 8;
/// How librados tells in its log under which number the cluster knows it.
const CLIENT_MARK: &str = "authenticate success, global_id ";

/// Which image, and how to reach it. The key stays in its keyring.
#[derive(Debug, Clone, Copy)]
pub struct ExportSource<'a> {
    pub monitors: &'a str,
    /// Without `client.`
    pub user: &'a str,
    pub keyring: &'a Path,
    pub pool: &'a str,
    /// Empty for the pool's own.
    pub namespace: &'a str,
    pub image: &'a str,
    pub read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportEnd {
    Clean,
    /// By us, or before. The cluster has to blocklist it, or others wait for what it had.
    Killed,
}

/// May be running, or not, or be half-made.
#[derive(Debug, Clone)]
pub struct Export {
    directory: PathBuf,
}

pub fn is_installed() -> bool {
    tool::find(PROGRAM).is_some()
}

impl Export {
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The image's bytes, while the export runs.
    pub fn file(&self) -> PathBuf {
        self.directory.join("image")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    fn configuration(&self) -> PathBuf {
        self.directory.join("ceph.conf")
    }

    fn address(&self) -> PathBuf {
        self.directory.join("address")
    }

    fn process_number(&self) -> PathBuf {
        self.directory.join("pid")
    }

    /// Is anything left of it?
    pub fn exists(&self) -> bool {
        self.directory.symlink_metadata().is_ok()
    }

    /// Returns when the image is open and the file shows it. There must be nothing of an earlier one.
    /// While the cluster is away an image cannot be opened: that ends with `ETIMEDOUT` and leaves no
    /// process, which has no file to show yet, so that no workload misses it.
    pub fn start(&self, source: &ExportSource<'_>, limit: Duration) -> Result<()> {
        // Left by a start that was interrupted when the daemon was killed.
        self.kill_unfinished()?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .effect_on("make", &self.directory)?;
        self.write_private(&self.configuration(), &self.configured(source))?;
        self.write_private(&self.file(), "")?;
        match tool::run_within(limit, PROGRAM, self.arguments(source)) {
            Err(error) => {
                self.kill_unfinished()?;
                Err(error)
            }
            done => done.map(drop),
        }
    }

    /// Ends a process that is starting this export and has not written its pid file yet.
    ///
    /// It forks twice to become a daemon. A listing of processes may hold the one in the middle, which ends before
    /// its command line is read, and not its child: then none is found although one lives. Two listings in a
    /// row cannot both miss it.
    fn kill_unfinished(&self) -> Result<()> {
        let mut unseen = 0;
        for _ in 0..KILL_ATTEMPTS {
            unseen = if self.kill_all_seen()? { 0 } else { unseen + 1 };
            if unseen == 2 {
                return Ok(());
            }
        }
        Err(Errno::BUSY).on("stop the unfinished export in", &self.directory)
    }

    fn kill_all_seen(&self) -> Result<bool> {
        let (own, processes) = (self.directory.as_path(), Path::new("/proc"));
        let mut seen = false;
        for entry in fs::read_dir(processes).on("list", processes)? {
            let name = entry.on("list", processes)?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let Some(process) =
                number.map(|number| self.exporting_process(number)).transpose()?.flatten()
            else {
                continue;
            };
            seen = true;
            match pidfd_send_signal(&process, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(errno).on("stop the unfinished export in", own),
            }
            ends_soon(&process).on("wait for the unfinished export in", own)?;
        }
        Ok(seen)
    }

    fn write_private(&self, path: &Path, text: &str) -> Result<()> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).effect_on("write", path)
    }

    /// No timeouts for operations: a workload waits until the cluster is back, rather than see
    /// errors that a filesystem would not survive.
    fn configured(&self, source: &ExportSource<'_>) -> String {
        format!(
            "[global]\nmon_host = {}\nkeyring = {}\nlog_file = {}\nlog_to_stderr = false\n\
             admin_socket =\nclient_mount_timeout = 30\ndebug_monc = 5/5\n",
            source.monitors,
            source.keyring.display(),
            self.log().display(),
        )
    }

    fn arguments(&self, source: &ExportSource<'_>) -> Vec<String> {
        let (read_only, writable) = if source.read_only { ("on", "off") } else { ("off", "on") };
        let namespace = match source.namespace {
            "" => String::new(),
            name => format!("namespace={},", quoted(name)),
        };
        // Without its own cache, other nodes see what was written as soon as it is.
        let blockdev = format!(
            "driver=rbd,node-name=image,pool={},{namespace}image={},conf={},user={},\
             read-only={read_only},cache.direct=on,discard=unmap",
            quoted(source.pool),
            quoted(source.image),
            quoted_path(&self.configuration()),
            quoted(source.user),
        );
        let export = format!(
            "type=fuse,id=export,node-name=image,mountpoint={},writable={writable},\
             growable=off,allow-other=off",
            quoted_path(&self.file()),
        );
        let pid_file = self.process_number().display().to_string();
        ["--blockdev", &blockdev, "--export", &export, "--pidfile", &pid_file, "--daemonize"]
            .map(str::to_owned)
            .to_vec()
    }

    pub fn is_running(&self) -> Result<bool> {
        Ok(self.process()?.is_some())
    }

    /// The numbers under which the cluster knows this export's connections, as far as its log has
    /// them yet.
    pub fn clients(&self) -> Result<Vec<i64>> {
        let log = self.log();
        match fs::read(&log) {
            Ok(text) => Ok(clients_in(&String::from_utf8_lossy(&text))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).on("read", &log),
        }
    }

    /// Keeps in the directory where the cluster sees the client, once that is known.
    pub fn remember_address(&self, address: &str) -> Result<()> {
        self.write_private(&self.address(), address)
    }

    pub fn remembered_address(&self) -> Result<Option<String>> {
        let path = self.address();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).on("read", &path),
        }
    }

    /// The image has grown; the export has to learn it, as it looked only once. Both sizes are then
    /// this one, so it must not be smaller than the image.
    pub fn set_size(&self, bytes: u64) -> Result<()> {
        let path = self.file();
        let file = OpenOptions::new().write(true).open(&path).on("open", &path)?;
        if file.metadata().on("stat", &path)?.len() == bytes {
            return Ok(());
        }
        file::set_length(&file, bytes)
    }

    /// Returns when all is done that was asked of it before: it takes one request after the other,
    /// and waits for the cluster in between.
    pub fn wait_until_idle(&self) -> Result<()> {
        let path = self.file();
        OpenOptions::new().read(true).open(&path).on("open", &path).map(drop)
    }

    /// Every failed write of a workload is in the log.
    pub fn keep_log_short(&self) {
        let log = self.log();
        let too_long = fs::metadata(&log).is_ok_and(|log| log.len() > LONGEST_LOG);
        if too_long
            && let Err(error) =
                OpenOptions::new().write(true).open(&log).and_then(|log| log.set_len(0))
        {
            tracing::debug!(%error, "cannot truncate the log of an export");
        }
    }

    /// Closes the image and removes the directory. No write to the image may follow: a process that does not end by
    /// itself is killed.
    pub fn ensure_stopped(&self) -> Result<ExportEnd> {
        let ending = match self.process()? {
            // The daemon that started it was killed before it wrote its number; it would export the image
            // on, and keep it open, once no record names it.
            None => {
                self.kill_unfinished()?;
                ExportEnd::Killed
            }
            Some(process) => self.end(&process)?,
        };
        // A process that was killed has left its mount behind.
        mounts::ensure_unmounted(&self.file())?;
        file::remove_tree(&self.directory)?;
        Ok(ending)
    }

    fn end(&self, process: &OwnedFd) -> Result<ExportEnd> {
        let exported = self.file();
        for (signal, ending) in
            [(Signal::TERM, ExportEnd::Clean), (Signal::KILL, ExportEnd::Killed)]
        {
            match pidfd_send_signal(process, signal) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(errno).on("stop the export of", &exported),
            }
            if ends_soon(process).on("wait for the export of", &exported)? {
                return Ok(ending);
            }
        }
        Err(Errno::BUSY).on("stop the export of", &exported)
    }

    /// Process ids are reused, so the process has to be one that exports our file. The descriptor refers to the
    /// process that was checked, and to no later one of its id.
    fn process(&self) -> Result<Option<OwnedFd>> {
        let path = self.process_number();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).on("read", &path),
        };
        let Some(number) = text.trim().parse().ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        self.exporting_process(number)
    }

    fn exporting_process(&self, number: Pid) -> Result<Option<OwnedFd>> {
        let descriptor = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(errno).on("look for the process of", &self.directory),
        };
        let words = fs::read(format!("/proc/{}/cmdline", number.as_raw_pid())).unwrap_or_default();
        let mark = format!("mountpoint={},", quoted_path(&self.file()));
        let ours = words.split(|byte| *byte == 0).any(|word| contains(word, mark.as_bytes()));
        Ok(ours.then_some(descriptor))
    }
}

fn ends_soon(process: &OwnedFd) -> rustix::io::Result<bool> {
    let timeout =
        Timespec { tv_sec: i64::try_from(STOP_TIMEOUT.as_secs()).unwrap_or(1), tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout))? > 0)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

pub(crate) fn clients_in(log: &str) -> Vec<i64> {
    let found = log.lines().filter_map(|line| line.split_once(CLIENT_MARK));
    found.filter_map(|(_, number)| number.trim().parse().ok()).collect()
}

/// Within an option a comma ends the value, two are one.
fn quoted(value: &str) -> String {
    value.replace(',', ",,")
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests;
