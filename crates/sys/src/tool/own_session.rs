//! Programs in a session of their own, as those of LVM need it: what they do must not be torn by a signal that was meant
//! for the daemon.
//!
//! One that changes something is never ended, neither by a timeout nor with this process: half-way it may have suspended
//! a device, and nothing else would resume it. One that only reads gets a time, and is killed after it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::{Watch, ends_within, find, poll_until, prepared, spawn};
use crate::abi::{outlive_parent, set_apart};
use crate::crash;
use crate::error::{Context, Error, Result};

/// A report of LVM about ten thousand volumes has half as much.
const LONGEST_OUTPUT: usize = 32 << 20;
const LONGEST_COMPLAINT: usize = 64 << 10;
/// What a pipe holds.
const CHUNK: usize = 64 << 10;
/// A killed process ends at once, unless it waits for a device.
const END_OF_KILLED: Duration = Duration::from_secs(1);

/// A program that ran to its end, with whatever status.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    /// Its first 64 KiB.
    pub stderr: String,
}

/// Runs a program that changes something to its end, however long that takes; a warning in the log every 30 seconds
/// tells what is being waited for. Of what it writes to stdout, the first 32 MiB are kept.
pub fn run_to_end<I, S>(name: &str, arguments: I) -> Result<Ended>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    run_to_end_with(Stdio::null(), name, arguments)
}

/// The same, with an input that the program does not read.
pub(super) fn run_to_end_with<I, S>(input: Stdio, name: &str, arguments: I) -> Result<Ended>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let program = path_of(name)?;
    let mut command = prepared(&program, arguments);
    command.stdin(input);
    outlive_parent(&mut command);
    run_prepared(name, &program, command, ())
}

/// `passed_on` is what, beside its input, only the program is to have.
pub(super) fn run_prepared<P>(
    name: &str,
    program: &Path,
    mut command: Command,
    passed_on: P,
) -> Result<Ended> {
    let mut child = spawn(&mut command).effect_on("start", program)?;
    drop((command, passed_on));
    let watch = Watch::start(name);
    let mut outputs = Outputs::of(&mut child);
    let read = outputs.read_to_end(&child, None);
    let status = child.wait().on("wait for", program)?;
    drop(watch);
    crash::after(name);
    read.on("read the output of", program)?;
    Ok(outputs.ended(status))
}

/// Starts programs that only read. While one that was killed has not ended, because it waits for a device in the
/// kernel, no other is started that would wait as well.
#[derive(Debug)]
pub struct Queries {
    limit: Duration,
    stuck: Arc<AtomicBool>,
}

impl Queries {
    /// `limit`: how long each may take.
    pub fn new(limit: Duration) -> Self {
        Self { limit, stuck: Arc::default() }
    }

    /// [`Error::Unanswered`] if it takes longer than the limit, or an earlier one is stuck.
    pub fn run<I, S>(&self, name: &str, arguments: I) -> Result<Ended>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let unanswered = |reason| Error::Unanswered { tool: name.to_owned(), reason };
        if self.stuck.load(Ordering::Acquire) {
            let why = "an earlier query was killed and has not ended: it waits for a device";
            return Err(unanswered(why.to_owned()));
        }
        let program = path_of(name)?;
        let mut command = prepared(&program, arguments);
        set_apart(&mut command);
        let mut child = spawn(&mut command).on("start", &program)?;
        let mut outputs = Outputs::of(&mut child);
        let ended = outputs.read_to_end(&child, Some(Instant::now() + self.limit));
        if !matches!(ended, Ok(true)) {
            // With all that it has started: it leads the group.
            kill_process_group(Pid::from_child(&child), Signal::KILL).on("kill", &program)?;
            self.wait_for_killed(child, name).on("wait for", &program)?;
            ended.on("read the output of", &program)?;
            return Err(unanswered(format!("it was killed after {} s", self.limit.as_secs())));
        }
        let status = child.wait().on("wait for", &program)?;
        if outputs.stdout.is_cut {
            let reason = format!("it is longer than {LONGEST_OUTPUT} bytes");
            return Err(Error::refused("read the output of", &program, reason));
        }
        Ok(outputs.ended(status))
    }

    fn wait_for_killed(&self, mut child: Child, name: &str) -> io::Result<()> {
        if ends_within(END_OF_KILLED, &child)? {
            return child.wait().map(drop);
        }
        tracing::warn!(tool = name, "a query that was killed waits for a device in the kernel");
        self.stuck.store(true, Ordering::Release);
        let (stuck, tool) = (Arc::clone(&self.stuck), name.to_owned());
        let wait = move || {
            match child.wait() {
                Ok(_) => tracing::info!(tool, "a query that was killed has ended"),
                Err(error) => tracing::warn!(tool, %error, "cannot wait for a killed query"),
            }
            stuck.store(false, Ordering::Release);
        };
        let waiting = std::thread::Builder::new().name(format!("wait for {name}")).spawn(wait);
        if waiting.is_err() {
            // Nothing would ever lift the refusal.
            self.stuck.store(false, Ordering::Release);
        }
        waiting.map(drop)
    }
}

pub(super) fn path_of(name: &str) -> Result<PathBuf> {
    find(name).ok_or_else(|| Error::ToolMissing { tool: name.to_owned() })
}

struct Outputs {
    stdout: Output,
    stderr: Output,
}

impl Outputs {
    fn of(child: &mut Child) -> Self {
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        Self {
            stdout: Output::new(stdout, LONGEST_OUTPUT),
            stderr: Output::new(stderr, LONGEST_COMPLAINT),
        }
    }

    /// Until the program ends. That is not when its pipes are closed: what it leaves running may keep them open without end.
    /// False: it did not end by the deadline.
    fn read_to_end(&mut self, child: &Child, deadline: Option<Instant>) -> io::Result<bool> {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        loop {
            let mut files = vec![PollFd::new(&process, PollFlags::IN)];
            files.extend(self.open().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            if !poll_until(&mut files, deadline)? {
                return Ok(false);
            }
            let has_ended = !files[0].revents().is_empty();
            // A pipe holds no more than a chunk, so this is the rest of what a program wrote that has ended.
            self.stdout.read_ready()?;
            self.stderr.read_ready()?;
            if has_ended {
                return Ok(true);
            }
        }
    }

    fn open(&self) -> impl Iterator<Item = &File> {
        [&self.stdout, &self.stderr].into_iter().filter_map(|output| output.pipe.as_ref())
    }

    fn ended(self, status: ExitStatus) -> Ended {
        let stderr = String::from_utf8_lossy(&self.stderr.kept).into_owned();
        Ended { status, stdout: self.stdout.kept, stderr }
    }
}

/// One of them, up to a limit. What comes after it is read and dropped, so that the program can go on.
struct Output {
    /// Absent once the other end is closed.
    pipe: Option<File>,
    kept: Vec<u8>,
    limit: usize,
    is_cut: bool,
}

impl Output {
    fn new(pipe: Option<OwnedFd>, limit: usize) -> Self {
        Self { pipe: pipe.map(File::from), kept: Vec::new(), limit, is_cut: false }
    }

    fn read_ready(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        if !poll_until(&mut [PollFd::new(pipe, PollFlags::IN)], Some(Instant::now()))? {
            return Ok(());
        }
        let mut chunk = vec![0; CHUNK];
        let length = pipe.read(&mut chunk)?;
        if length == 0 {
            self.pipe = None;
        }
        let taken = length.min(self.limit - self.kept.len());
        self.kept.extend_from_slice(&chunk[..taken]);
        self.is_cut |= taken < length;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
