//! Runs host programs: mkfs, fsck and their like.

mod left_running;
mod own_session;
mod with_secrets;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::abi::hide_mounts;
use crate::crash;
use crate::error::{Context, Error, Result};
use crate::mounts;

pub use left_running::{all_ended_within, run_to_end_locking};
pub use own_session::{Ended, Queries, run_to_end};
pub use with_secrets::{SecretArgument, run_with_secrets};

const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// libblkid trusts what it remembers of a device for seconds. By then a loop device may hold
/// another file, and mkfs.btrfs takes a UUID for used that is not.
const NO_CACHE: &str = "/dev/null";
/// The one inspects the file behind every loop device that is mounted on the machine, the other every mount point,
/// and both fail or hang if one of them cannot be reached. They claim their device anyway, which a mounted one would
/// not allow.
const INSPECTING_MOUNTS: [&str; 2] = ["mkfs.btrfs", "mkfs.xfs"];
/// The one variable that programs get from the daemon. It is set where udev of the host cannot be waited for, as in a
/// container: libdevmapper then makes the nodes of its devices itself.
const WITHOUT_UDEV: &str = "DM_DISABLE_UDEV";
const REMINDER_INTERVAL: Duration = Duration::from_secs(30);
const KEPT_LINES: usize = 8;
pub(crate) const KEPT_BYTES: usize = 1024;

/// The absolute path of a program. The caller's `PATH` has no say in it.
pub fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

/// Runs a program to its end; any exit status but 0 is an error.
///
/// It is never killed on a timeout, for a writer killed half-way does damage; a warning in the log
/// every 30 seconds tells what is being waited for. One that outlives this process ends when it has
/// something to say, by SIGPIPE; what it leaves is what a power cut leaves.
pub fn run<I, S>(name: &str, arguments: I) -> Result<Output>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    run_accepting(name, arguments, &[0])
}

/// Like [`run`], for programs that say more than yes or no with their exit status.
pub fn run_accepting<I, S>(name: &str, arguments: I, accepted: &[i32]) -> Result<Output>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    run_with(Stdio::null(), name, arguments, accepted)
}

/// Like [`run_accepting`], with an input that no program here reads: it is open until the program
/// ends, whatever becomes of this process.
pub(crate) fn run_with<I, S>(
    input: Stdio,
    name: &str,
    arguments: I,
    accepted: &[i32],
) -> Result<Output>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let program = find(name).ok_or_else(|| Error::ToolMissing { tool: name.to_owned() })?;
    let child = start(&program, arguments, input).effect_on("start", &program)?;
    let watch = Watch::start(name);
    let output = child.wait_with_output().on("wait for", &program)?;
    drop(watch);
    crash::after(name);

    if output.status.code().is_some_and(|code| accepted.contains(&code)) {
        return Ok(output);
    }
    Err(Error::Tool { tool: name.to_owned(), status: output.status, stderr: complaint(&output) })
}

/// Like [`run`], for programs that say little and can be stopped at any time: one that takes longer
/// is killed, with `ETIMEDOUT`. Its own child processes are not killed.
pub fn run_within<I, S>(limit: Duration, name: &str, arguments: I) -> Result<Output>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let program = find(name).ok_or_else(|| Error::ToolMissing { tool: name.to_owned() })?;
    let mut child = start(&program, arguments, Stdio::null()).effect_on("start", &program)?;
    if !ends_within(limit, &child).on("wait for", &program)? {
        child.kill().and_then(|()| child.wait()).effect_on("stop", &program)?;
        return Err(Errno::TIMEDOUT).on("wait for", &program);
    }
    let output = child.wait_with_output().on("wait for", &program)?;
    crash::after(name);
    if output.status.success() {
        return Ok(output);
    }
    Err(Error::Tool { tool: name.to_owned(), status: output.status, stderr: complaint(&output) })
}

fn ends_within(limit: Duration, child: &Child) -> rustix::io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    poll_until(&mut ended, Some(Instant::now() + limit))
}

/// False: nothing happened until then.
fn poll_until(files: &mut [PollFd<'_>], deadline: Option<Instant>) -> rustix::io::Result<bool> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(|_| Errno::INVAL)?;
        match poll(files, left.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

fn start<I, S>(program: &Path, arguments: I, input: Stdio) -> std::io::Result<Child>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = prepared(program, arguments);
    command.stdin(input);
    if INSPECTING_MOUNTS.iter().any(|name| program.ends_with(name)) {
        let used = files_of(&command);
        // Without the list the program runs all the same, and keeps mounts for as long as it does.
        hide_mounts(&mut command, mounts::releasable(&used).unwrap_or_default());
    }
    spawn(&mut command)
}

/// With a clean environment, no input, and pipes for its output.
fn prepared<I, S>(program: &Path, arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = command(program);
    command
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", SEARCH_PATH)
        .env("BLKID_FILE", NO_CACHE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(value) = std::env::var_os(WITHOUT_UDEV) {
        command.env(WITHOUT_UDEV, value);
    }
    command
}

/// The files that the arguments name, without links on the way to them.
fn files_of(command: &Command) -> Vec<PathBuf> {
    command
        .get_args()
        .map(Path::new)
        .filter(|argument| argument.is_absolute())
        .filter_map(|path| path.canonicalize().ok())
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "the one place where programs are started")]
pub(crate) fn command(program: &Path) -> Command {
    Command::new(program)
}

/// Returns when the child has executed the program, and so closed what it inherited.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Between fork and exec a child has copies of all descriptors, so a lock or claim on one of them outlives its release
/// here. Code that holds such a descriptor for a moment delays the start of programs for that time.
static STARTING: RwLock<()> = RwLock::new(());

pub(crate) fn hold_starts() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// What the program said last. e2fsck gives its reasons on stdout and the verdict on stderr.
fn complaint(output: &Output) -> String {
    let said = [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream));
    last_lines(&[&said[0], &said[1]].map(|text| before_usage(text)).join("\n"))
}

/// mkfs.xfs and others say in one line what is wrong, and then in dozens how they are used. All of
/// it where that is all.
pub(crate) fn before_usage(text: &str) -> &str {
    let is_usage = |line: &&str| {
        let start = line.trim_start().as_bytes().get(..5);
        start.is_some_and(|start| start.eq_ignore_ascii_case(b"usage"))
    };
    let mut before = 0;
    for line in text.split_inclusive('\n') {
        if is_usage(&line) {
            let reason = &text[..before];
            return if reason.trim().is_empty() { text } else { reason };
        }
        before += line.len();
    }
    text
}

pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let kept = lines[lines.len().saturating_sub(KEPT_LINES)..].join("; ");
    let mut start = kept.len().saturating_sub(KEPT_BYTES);
    while !kept.is_char_boundary(start) {
        start += 1;
    }
    kept[start..].to_owned()
}

/// Warns while a program runs for long; ends when dropped.
struct Watch {
    _ended: mpsc::Sender<()>,
}

impl Watch {
    fn start(name: &str) -> Self {
        let (ended, end) = mpsc::channel();
        let name = name.to_owned();
        let watching = std::thread::Builder::new().name(format!("watch {name}")).spawn(move || {
            let started = Instant::now();
            while end.recv_timeout(REMINDER_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                let seconds = started.elapsed().as_secs();
                tracing::warn!(tool = name, seconds, "a tool is still running");
            }
        });
        if let Err(error) = watching {
            tracing::debug!(%error, "cannot watch a running tool");
        }
        Self { _ended: ended }
    }
}

#[cfg(test)]
mod tests;
