//! How many calls that share their places wait for locks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Half of the places that calls of one kind have on one pool.
const SEATS: usize = 32;

/// Of calls that use the same places. Those that wait on a pool that is slow must use up neither the
/// places of that pool nor the patience for calls on others, so each kind of place has one of these.
#[derive(Debug, Clone, Default)]
pub struct WaitingRoom {
    taken: Arc<AtomicUsize>,
}

impl WaitingRoom {
    /// `None`: it is full.
    pub(super) fn try_enter(&self) -> Option<Seat> {
        let seat = Seat { taken: Arc::clone(&self.taken) };
        // Counted first, so that not even a crowd gets past the limit together.
        (self.taken.fetch_add(1, Ordering::Relaxed) < SEATS).then_some(seat)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.taken.load(Ordering::Relaxed) == 0
    }
}

/// Free again when dropped.
pub(super) struct Seat {
    taken: Arc<AtomicUsize>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
