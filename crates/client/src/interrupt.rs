//! Long work that Ctrl-C ends in an orderly way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use crate::failure::{Failure, Result};
use crate::signals::Signals;

/// Looked at between two parts of the work.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
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

/// From here on a signal ends no part of the command but its work, so that what comes after it is done in any case.
pub(crate) struct Interruptible {
    pub(crate) stop: Stop,
    listening: JoinHandle<()>,
}

impl Interruptible {
    pub(crate) fn begin() -> Result<Self> {
        let mut signals = Signals::listen()?;
        let stop = Stop::default();
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
        work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let stop = self.stop.clone();
        let done = tokio::task::spawn_blocking(move || work(&stop)).await;
        done.unwrap_or_else(|error| Err(Failure::failed(format!("cannot go on: {error}"))))
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        self.listening.abort();
    }
}
