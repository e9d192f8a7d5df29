//! How many of the calls under one request limit wait for locks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Half of the permits of a request limit.
const MAX_WAITERS: usize = 32;

/// For the calls under one request limit. Those that wait for locks on a slow pool must use up neither its
/// permits nor the number of waiters that other pools may have, so each request limit has one of these.
#[derive(Debug, Clone, Default)]
pub struct WaiterLimit {
    waiting: Arc<AtomicUsize>,
}

impl WaiterLimit {
    /// `None`: it is full.
    pub(super) fn try_add(&self) -> Option<WaiterSlot> {
        let slot = WaiterSlot { waiting: Arc::clone(&self.waiting) };
        // Counted first, so that not even many at once get past the limit together.
        (self.waiting.fetch_add(1, Ordering::Relaxed) < MAX_WAITERS).then_some(slot)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }
}

/// Free again when dropped.
pub(super) struct WaiterSlot {
    waiting: Arc<AtomicUsize>,
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
