//! How many calls are taken on at once. More than run at a time may wait for their turn, but not
//! any number: each holds its message.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Far more than the sidecars of a large cluster make together.
const MOST: usize = 1024;

#[derive(Clone, Default)]
pub(crate) struct Taken(Arc<AtomicUsize>);

impl Taken {
    /// `None`: there are too many.
    pub(crate) fn try_one_more(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.0));
        // Counted first, so that not even a crowd of them gets past the limit together.
        (self.0.fetch_add(1, Ordering::Relaxed) < MOST).then_some(place)
    }
}

pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_waits_for_another_to_end() {
        let taken = Taken::default();
        let mut places: Vec<_> = (0..MOST).map(|_| taken.try_one_more()).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(taken.try_one_more().is_none());
        assert!(taken.try_one_more().is_none(), "a refusal takes no place");
        places.pop();
        assert!(taken.try_one_more().is_some());
    }
}
