//! Long work that Ctrl-C ends in an orderly way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Result};

/// Looked at between two parts of the work.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// On a thread of its own. From here on a signal ends no part of the command but the work, so that what comes after
/// it is done in any case.
pub(super) async fn run<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
) -> Result<T> {
    let cannot =
        |error: std::io::Error| Failure::failed(format!("cannot listen for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let stop = Stop::default();
    let seen = stop.clone();
    let mut working = tokio::task::spawn_blocking(move || work(&seen));
    loop {
        tokio::select! {
            done = &mut working => {
                return done.unwrap_or_else(|error| Err(Failure::failed(format!("cannot copy: {error}"))));
            }
            _ = interrupt.recv() => stop.0.store(true, Ordering::Relaxed),
            _ = terminate.recv() => stop.0.store(true, Ordering::Relaxed),
        }
    }
}
