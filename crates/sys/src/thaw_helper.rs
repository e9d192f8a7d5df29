//! A helper process that thaws filesystems if the daemon dies while they are frozen.
//!
//! A daemon that is killed while a filesystem is frozen leaves all writers hanging until
//! it is started again. So it keeps a small process beside it, connected by a pipe whose other end
//! only the daemon has: before each freeze it registers the mount point there, after the thaw
//! it unregisters it. The end of the pipe is the end of the daemon, however it came; then the
//! helper thaws what is still registered, and ends too.
//!
//! Where the daemon is the first process of a container, the kernel kills the helper together with
//! it; then the next start of the daemon has to thaw.
//!
//! Devices of device-mapper that the daemon suspends are registered in the same way, by their paths in /dev/mapper.
//!
//! A message is `+` or `-`, the path, and a zero byte, which no path holds. One that is cut short is
//! without meaning: the freeze it announces has not begun, or the thaw it reports is done.

pub(crate) mod messages;

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
use messages::Message;

pub use messages::run;

/// A program that calls [`run`] on its standard input.
#[derive(Debug, Clone)]
pub struct HelperCommand {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

impl HelperCommand {
    /// The program that runs now, also if its file was replaced since.
    pub fn this_program(argument: &str) -> Self {
        Self { program: "/proc/self/exe".into(), arguments: vec![argument.into()] }
    }

    fn start(&self) -> Result<HelperProcess> {
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
        let running = HelperProcess { child };
        if let Some(pipe) = &running.child.stdin {
            // A helper that is stopped must not stop its owner, once the pipe is full.
            fcntl_setfl(pipe, OFlags::NONBLOCK).on("set up the pipe of", &self.program)?;
        }
        Ok(running)
    }
}

/// The owner's side. When it goes, it waits for the helper to end.
pub struct ThawHelper {
    command: HelperCommand,
    state: Mutex<HelperState>,
}

#[derive(Default)]
struct HelperState {
    registered: BTreeSet<PathBuf>,
    running: Option<HelperProcess>,
}

impl ThawHelper {
    /// Starts nothing yet; the first registration would.
    pub fn new(command: HelperCommand) -> Self {
        Self { command, state: Mutex::default() }
    }

    /// Starts the helper now, so that no freeze waits for it.
    pub fn ensure_running(&self) -> Result<()> {
        let mut state = self.lock();
        if state.running.is_none() {
            state.running = Some(self.command.start()?);
        }
        Ok(())
    }

    /// To be called before a freeze. On an error there is no helper for it; the next call tries
    /// to start one.
    pub fn register(&self, mount_point: &Path) -> Result<()> {
        let mut state = self.lock();
        state.registered.insert(mount_point.to_owned());
        state.send(&self.command, &Message::Frozen(mount_point))
    }

    /// To be called after the thaw; what was not registered is no concern of the helper.
    pub fn unregister(&self, mount_point: &Path) -> Result<()> {
        let mut state = self.lock();
        if !state.registered.remove(mount_point) || state.running.is_none() {
            return Ok(());
        }
        state.send(&self.command, &Message::Thawed(mount_point))
    }

    fn lock(&self) -> MutexGuard<'_, HelperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn process_id(&self) -> Option<u32> {
        self.lock().running.as_ref().map(|running| running.child.id())
    }
}

impl HelperState {
    fn send(&mut self, command: &HelperCommand, message: &Message<'_>) -> Result<()> {
        if let Some(mut running) = self.running.take() {
            match running.send(&message.encoded()) {
                Ok(()) => {
                    crash::after("write to the thaw helper");
                    self.running = Some(running);
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "the thaw helper has ended or does not respond; starting another"
                    );
                    running.abandon();
                }
            }
        }
        let mut running = command.start()?;
        let all: Vec<u8> =
            self.registered.iter().flat_map(|path| Message::Frozen(path).encoded()).collect();
        running.send(&all).effect_on("write to the thaw helper", &command.program)?;
        self.running = Some(running);
        Ok(())
    }
}

struct HelperProcess {
    child: Child,
}

impl HelperProcess {
    fn send(&mut self, messages: &[u8]) -> std::io::Result<()> {
        match &mut self.child.stdin {
            Some(pipe) => pipe.write_all(messages),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Ends a helper that does not listen before the pipe closes: should it come back, it would
    /// take that for the death of its owner and end freezes that are in order.
    fn abandon(mut self) {
        if let Err(error) = self.child.kill() {
            tracing::warn!(%error, "cannot end a thaw helper that does not respond");
        }
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // Closes the pipe first.
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "cannot read the exit status of the thaw helper");
        }
    }
}

#[cfg(test)]
mod tests;
