//! How many calls run, and wait, under each request limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use orlop_model::PoolId;

use super::Executor;

/// Counts until it is dropped, also if the caller hangs up.
pub(super) struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    pub(super) fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many calls run and wait under one request limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCalls {
    /// `None`: calls about no pool in particular.
    pub pool: Option<PoolId>,
    /// `controller`, `node` or `stream`.
    pub side: &'static str,
    pub running: usize,
    pub waiting: usize,
}

impl Executor {
    /// By request limit; a limit that no call has needed yet is not there.
    pub fn running_calls(&self) -> Vec<RunningCalls> {
        let limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let all = limits.all.iter().map(|(key, limit)| RunningCalls {
            pool: key.pool.clone(),
            side: key.kind.name(),
            running: limit.running.load(Ordering::Relaxed),
            waiting: limit.waiting.load(Ordering::Relaxed),
        });
        all.collect()
    }
}
