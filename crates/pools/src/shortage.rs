//! Whether a pool is short of space, for a log that tells it when it begins and when it is over.

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Shortage {
    is_on: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Begun,
    Over,
}

impl Shortage {
    /// By what was noted last.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// `has_plenty` asks for more than not being short, so that a pool whose free space goes up and
    /// down a little around the limit is reported once. Of several threads that call this at once, one
    /// gets the change.
    pub(crate) fn note(&self, is_short: bool, has_plenty: bool) -> Option<Change> {
        let change = match self.is_on.load(Ordering::Relaxed) {
            false if is_short => Change::Begun,
            true if has_plenty => Change::Over,
            false | true => return None,
        };
        let turns_on = change == Change::Begun;
        let turned =
            self.is_on.compare_exchange(!turns_on, turns_on, Ordering::Relaxed, Ordering::Relaxed);
        turned.ok().map(|_| change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_is_logged_at_begin_and_end() {
        let shortage = Shortage::default();
        assert_eq!(shortage.note(false, true), None);
        assert_eq!(shortage.note(true, false), Some(Change::Begun));
        assert_eq!(shortage.note(true, false), None);
        assert_eq!(shortage.note(false, false), None, "it may come back at any moment");
        assert_eq!(shortage.note(true, false), None);
        assert_eq!(shortage.note(false, true), Some(Change::Over));
        assert_eq!(shortage.note(false, true), None);
        assert_eq!(shortage.note(true, false), Some(Change::Begun));
    }
}
