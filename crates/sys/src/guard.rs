//! A process that thaws what its owner froze and can thaw no more.
//!
//! A daemon that is killed while a filesystem is frozen leaves all writers hanging until somebody
//! starts it again. So it keeps a small process beside it, connected by a pipe whose other end
//! only the daemon has: before each freeze it notes the mount point there, after the thaw it
//! takes the note back. The end of the pipe is the end of the daemon, however it came; then the
//! guard thaws what is still noted, and ends too.
//!
//! Where the daemon is the first process of a container, the kernel kills the guard together with
//! it; then the next start of the daemon has to thaw.
//!
//! A note is `+` or `-`, the path, and a zero byte, which no path holds. One that is cut short is
//! without meaning: the freeze it announces has not begun, or the thaw it reports is done.

pub(crate) mod notes;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{OFlags, fcntl_setfl};

use crate::abi;
use crate::crash;
use crate::error::{Context, Result};
use crate::tool;
use notes::Note;

pub use notes::run;

/// A program that calls [`run`] on its standard input.
#[derive(Debug, Clone)]
pub struct GuardCommand {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

impl GuardCommand {
    /// The program that runs now, also if its file was replaced since.
    pub fn this_program(argument: &str) -> Self {
        Self { program: "/proc/self/exe".into(), arguments: vec![argument.into()] }
    }

    fn start(&self) -> Result<Running> {
        let mut command = tool::command(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        abi::set_apart(&mut command);
        let child = tool::spawn(&mut command).effect_on("start", &self.program)?;
        let running = Running { child };
        if let Some(pipe) = &running.child.stdin {
            // A guard that is stopped must not stop its owner, once the pipe is full.
            fcntl_setfl(pipe, OFlags::NONBLOCK).on("set up the pipe of", &self.program)?;
        }
        Ok(running)
    }
}

/// The owner's side. When it goes, it waits for the guard to end.
pub struct ThawGuard {
    command: GuardCommand,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    noted: BTreeSet<PathBuf>,
    running: Option<Running>,
}

impl ThawGuard {
    /// Starts nothing yet; the first note would.
    pub fn new(command: GuardCommand) -> Self {
        Self { command, state: Mutex::default() }
    }

    /// Starts the guard now, so that no freeze waits for it.
    pub fn ensure_running(&self) -> Result<()> {
        let mut state = self.lock();
        if state.running.is_none() {
            state.running = Some(self.command.start()?);
        }
        Ok(())
    }

    /// To be called before a freeze. On an error there is no guard for it; the next note tries
    /// to start one.
    pub fn note(&self, mount_point: &Path) -> Result<()> {
        let mut state = self.lock();
        state.noted.insert(mount_point.to_owned());
        state.tell(&self.command, &Note::Frozen(mount_point))
    }

    /// To be called after the thaw; what was not noted is no concern of the guard.
    pub fn forget(&self, mount_point: &Path) -> Result<()> {
        let mut state = self.lock();
        if !state.noted.remove(mount_point) || state.running.is_none() {
            return Ok(());
        }
        state.tell(&self.command, &Note::Thawed(mount_point))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn process_id(&self) -> Option<u32> {
        self.lock().running.as_ref().map(|running| running.child.id())
    }
}

impl State {
    fn tell(&mut self, command: &GuardCommand, note: &Note<'_>) -> Result<()> {
        if let Some(mut running) = self.running.take() {
            match running.send(&note.encoded()) {
                Ok(()) => {
                    crash::after("tell the guard");
                    self.running = Some(running);
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "the thaw guard has ended or does not respond; starting another"
                    );
                    running.abandon();
                }
            }
        }
        let mut running = command.start()?;
        let all: Vec<u8> =
            self.noted.iter().flat_map(|path| Note::Frozen(path).encoded()).collect();
        running.send(&all).effect_on("tell the guard", &command.program)?;
        self.running = Some(running);
        Ok(())
    }
}

struct Running {
    child: Child,
}

impl Running {
    fn send(&mut self, notes: &[u8]) -> std::io::Result<()> {
        match &mut self.child.stdin {
            Some(pipe) => pipe.write_all(notes),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Ends a guard that does not listen before the pipe closes: should it come back, it would
    /// take that for the death of its owner and end freezes that are in order.
    fn abandon(mut self) {
        if let Err(error) = self.child.kill() {
            tracing::warn!(%error, "cannot end a thaw guard that does not respond");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Closes the pipe first.
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "cannot read the exit status of the thaw guard");
        }
    }
}

#[cfg(test)]
mod tests;
