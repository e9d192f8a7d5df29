//! Long work that stops at Ctrl-C, so that what was set up for it can be undone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use crate::failure::{Failure, Result};
use crate::signals::Signals;

/// Checked between two parts of the work.
#[derive(Clone, Default)]
pub(crate) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Failure::Interrupted("interrupted".to_owned())),
            false => Ok(()),
        }
    }

    #[cfg(test)]
    pub(crate) fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// While this exists, a signal stops the work only, and the command still cleans up after it.
pub(crate) struct Interruptible {
    pub(crate) stop: StopFlag,
    listening: JoinHandle<()>,
}

impl Interruptible {
    pub(crate) fn begin() -> Result<Self> {
        let mut signals = Signals::listen()?;
        let stop = StopFlag::default();
        let seen = stop.clone();
        let listening = tokio::spawn(async move {
            signals.received().await;
            seen.0.store(true, Ordering::Relaxed);
        });
        Ok(Self { stop, listening })
    }

    /// On a separate thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&StopFlag) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let stop = self.stop.clone();
        let done = tokio::task::spawn_blocking(move || work(&stop)).await;
        done.unwrap_or_else(|error| {
            Err(Failure::failed(format!("cannot finish the command: {error}")))
        })
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
