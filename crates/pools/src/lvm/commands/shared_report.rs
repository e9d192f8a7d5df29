//! One report for all who ask for one at the same time.
//!
//! It answers those who asked before it began: what was so then, or became so while it ran, they would find themselves.
//! Who asks while it runs gets the next one, together with all others who do.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use orlop_model::Result;

use super::super::report::GroupReport;
use crate::poison::lock;

#[derive(Debug, Default)]
pub(super) struct SharedReport {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last one that was begun.
    begun: u64,
    is_running: bool,
    latest: Option<Latest>,
    /// Those up to this number do not show a change that came later.
    outdated: u64,
}

#[derive(Debug)]
struct Latest {
    number: u64,
    since: Instant,
    result: Result<Arc<GroupReport>>,
}

impl SharedReport {
    /// One that begins after the call.
    pub(super) fn get(
        &self,
        read: impl FnOnce() -> Result<GroupReport>,
    ) -> Result<Arc<GroupReport>> {
        let mut state = lock(&self.state);
        let wanted = state.begun + 1;
        loop {
            if let Some(latest) = state.latest.as_ref().filter(|latest| latest.number >= wanted) {
                return latest.result.clone();
            }
            if !state.is_running {
                break;
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.begun += 1;
        state.is_running = true;
        let number = state.begun;
        drop(state);
        let running = Running(self);
        let begun = Instant::now();
        let result = read().map(Arc::new);
        // What was given up after a long time is not tried again at once.
        let since = if result.is_ok() { begun } else { Instant::now() };
        lock(&self.state).latest = Some(Latest { number, since, result: result.clone() });
        drop(running);
        result
    }

    /// One that is at most so old, if it shows all changes; else as [`Self::get`].
    pub(super) fn recent(
        &self,
        age: Duration,
        read: impl FnOnce() -> Result<GroupReport>,
    ) -> Result<Arc<GroupReport>> {
        let state = lock(&self.state);
        let is_recent =
            |latest: &&Latest| latest.number > state.outdated && latest.since.elapsed() <= age;
        let recent = state.latest.as_ref().filter(is_recent).map(|latest| latest.result.clone());
        drop(state);
        recent.unwrap_or_else(|| self.get(read))
    }

    /// Something has changed: what was read before is not recent.
    pub(super) fn forget(&self) {
        let mut state = lock(&self.state);
        state.outdated = state.begun;
    }
}

/// Also after a panic, those who wait go on.
struct Running<'a>(&'a SharedReport);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_running = false;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
