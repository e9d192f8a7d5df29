//! What was asked and answered about one thing, and what it may therefore be after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Orders calls, answers and cuts.
#[derive(Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// Without letting time pass.
    pub(crate) fn peek(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The disk was copied somewhere in between.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CutWindow {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

/// Which stamp was written last to which slot.
pub(crate) type Contents = BTreeMap<u64, u64>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeState {
    pub(crate) size: u64,
    pub(crate) contents: Contents,
    /// Published by the controller.
    pub(crate) attached: bool,
    pub(crate) write_iops: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotState {
    pub(crate) size: u64,
    pub(crate) contents: Contents,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupState {
    pub(crate) members: BTreeSet<String>,
}

/// One caller makes, changes and deletes it, one call after the other.
#[derive(Debug)]
pub(crate) struct History<S> {
    pub(crate) id: String,
    changes: Vec<Change<S>>,
}

/// A call that was answered OK; `None` is that the thing is gone.
#[derive(Debug)]
struct Change<S> {
    begun: u64,
    ended: u64,
    after: Option<S>,
}

impl<S: Clone> History<S> {
    pub(crate) fn new(id: String) -> Self {
        Self { id, changes: Vec::new() }
    }

    pub(crate) fn record(&mut self, begun: u64, ended: u64, after: Option<S>) {
        self.changes.push(Change { begun, ended, after });
    }

    pub(crate) fn now(&self) -> Option<&S> {
        self.changes.last().and_then(|change| change.after.as_ref())
    }

    /// As it was made.
    pub(crate) fn first(&self) -> &S {
        let made = self.changes.first().and_then(|change| change.after.as_ref());
        made.expect("a thing that was made")
    }

    pub(crate) fn is_there(&self) -> bool {
        self.now().is_some()
    }

    /// What was answered before the cut holds. Calls that were under way have happened or not, but
    /// none of them before the one that came first.
    pub(crate) fn possible_states(&self, cut: CutWindow) -> Vec<Option<&S>> {
        let mut states = vec![None];
        for change in &self.changes {
            if change.ended < cut.begun {
                states.clear();
            }
            if change.begun < cut.ended {
                states.push(change.after.as_ref());
            }
        }
        states
    }

    /// When it was last touched before the cut.
    pub(crate) fn last_change(&self, cut: CutWindow) -> u64 {
        let before = self.changes.iter().filter(|change| change.begun < cut.ended);
        before.map(|change| change.begun).max().unwrap_or(0)
    }
}

#[test]
fn possible_states_follow_answers_not_calls_in_flight() {
    let mut history = History::new("v".to_owned());
    history.record(1, 2, Some(10));
    history.record(3, 6, Some(20));
    history.record(7, 9, None);
    let at = |begun, ended| history.possible_states(CutWindow { begun, ended });
    assert_eq!(at(0, 1), [None]);
    assert_eq!(at(0, 2), [None, Some(&10)]);
    assert_eq!(at(3, 3), [Some(&10)]);
    assert_eq!(at(4, 5), [Some(&10), Some(&20)]);
    assert_eq!(at(5, 8), [Some(&10), Some(&20), None]);
    assert_eq!(at(10, 11), [None]);
}
