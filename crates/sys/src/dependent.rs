//! A program that does not outlive the one that started it.
//!
//! It leads a session: a Ctrl-C at the terminal reaches its owner alone, which ends it in its own time. An owner that
//! is killed takes it along, by the kernel's hand.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::abi;
use crate::error::{Context, Result};
use crate::tool;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Killed and waited for when dropped.
#[derive(Debug)]
pub struct DependentProgram {
    child: Child,
    program: PathBuf,
}

impl DependentProgram {
    /// With these variables and no others; both output streams go to `output`.
    ///
    /// To be called on the main thread: the kernel kills the program when the *thread* that started it ends.
    pub fn start<S: AsRef<OsStr>>(
        program: &Path,
        arguments: &[S],
        variables: &[(OsString, OsString)],
        output: &File,
    ) -> Result<Self> {
        let copy = || output.try_clone().on("share the output of", program);
        let mut command = tool::command(program);
        command
            .args(arguments)
            .env_clear()
            .envs(variables.iter().cloned())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(copy()?)
            .stderr(copy()?);
        abi::end_with_parent(&mut command);
        let child = tool::spawn(&mut command).effect_on("start", program)?;
        Ok(Self { child, program: program.to_owned() })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Nothing happens if it has ended.
    pub fn send(&mut self, signal: Signal) -> Result<()> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        // Not waited for yet, so the number is still its own.
        kill_process(Pid::from_child(&self.child), signal).on("send a signal to", &self.program)
    }

    /// `None`: it runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().on("wait for", &self.program)
    }

    /// `None`: it still runs after this time.
    pub fn ended_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            match self.ended()? {
                None if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
                ended => return Ok(ended),
            }
        }
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        if self.ended()?.is_none() {
            self.child.kill().and_then(|()| self.child.wait()).on("kill", &self.program)?;
        }
        Ok(())
    }
}

impl Drop for DependentProgram {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::warn!(%error, "cannot end a program");
        }
    }
}

#[cfg(test)]
mod tests;
