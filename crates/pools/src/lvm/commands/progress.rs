//! Do the commands that change something come to an end?
//!
//! They are many at times, and each waits for those before it, and for reports; so what counts is not how long one takes, but
//! how long ago the last one ended.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::poison::lock;

/// How often time is compared while nothing ends.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Progress {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// When the last one ended, or the first one began after a time without any.
    since: Option<Instant>,
}

/// Until it is dropped.
pub(super) struct UnderWay<'a>(&'a Progress);

impl Progress {
    pub(super) fn begin(&self) -> UnderWay<'_> {
        let mut state = lock(&self.state);
        if state.running == 0 {
            state.since = Some(Instant::now());
        }
        state.running += 1;
        UnderWay(self)
    }

    /// As long as some are under way and none of them ends within `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        let mut state = lock(&self.state);
        while state.running > 0 && state.since.is_some_and(|since| since.elapsed() >= limit) {
            let waited = self.ended.wait_timeout(state, POLL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.running -= 1;
        state.since = Some(Instant::now());
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
