//! How many calls that share their places wait for locks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Half of the places that calls of one kind have on one pool.
const MOST_WAITERS: usize = 32;

/// Of calls that use the same places. Those that wait on a pool that is slow must use up neither the
/// places of that pool nor the patience for calls on others, so each kind of place has one of these.
#[derive(Debug, Clone, Default)]
pub struct WaiterLimit {
    waiting: Arc<AtomicUsize>,
}

impl WaiterLimit {
    /// `None`: it is full.
    pub(super) fn try_add(&self) -> Option<WaiterSlot> {
        let slot = WaiterSlot { waiting: Arc::clone(&self.waiting) };
        // Counted first, so that not even many at once get past the limit together.
        (self.waiting.fetch_add(1, Ordering::Relaxed) < MOST_WAITERS).then_some(slot)
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
