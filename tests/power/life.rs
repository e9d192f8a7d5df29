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
pub(crate) struct Moment {
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
pub(crate) struct Life<S> {
    pub(crate) id: String,
    turns: Vec<Turn<S>>,
}

/// A call that was answered OK; `None` is that the thing is gone.
#[derive(Debug)]
struct Turn<S> {
    begun: u64,
    ended: u64,
    after: Option<S>,
}

impl<S: Clone> Life<S> {
    pub(crate) fn new(id: String) -> Self {
        Self { id, turns: Vec::new() }
    }

    pub(crate) fn turned(&mut self, begun: u64, ended: u64, after: Option<S>) {
        self.turns.push(Turn { begun, ended, after });
    }

    pub(crate) fn now(&self) -> Option<&S> {
        self.turns.last().and_then(|turn| turn.after.as_ref())
    }

    /// As it was made.
    pub(crate) fn first(&self) -> &S {
        let made = self.turns.first().and_then(|turn| turn.after.as_ref());
        made.expect("a thing that was made")
    }

    pub(crate) fn is_there(&self) -> bool {
        self.now().is_some()
    }

    /// What was answered before the cut holds. Calls that were under way have happened or not, but
    /// none of them before the one that came first.
    pub(crate) fn may_be(&self, cut: Moment) -> Vec<Option<&S>> {
        let mut states = vec![None];
        for turn in &self.turns {
            if turn.ended < cut.begun {
                states.clear();
            }
            if turn.begun < cut.ended {
                states.push(turn.after.as_ref());
            }
        }
        states
    }

    /// When it was last touched before the cut.
    pub(crate) fn touched(&self, cut: Moment) -> u64 {
        let before = self.turns.iter().filter(|turn| turn.begun < cut.ended);
        before.map(|turn| turn.begun).max().unwrap_or(0)
    }
}

#[test]
fn answers_decide_and_calls_under_way_do_not() {
    let mut life = Life::new("v".to_owned());
    life.turned(1, 2, Some(10));
    life.turned(3, 6, Some(20));
    life.turned(7, 9, None);
    let at = |begun, ended| life.may_be(Moment { begun, ended });
    assert_eq!(at(0, 1), [None]);
    assert_eq!(at(0, 2), [None, Some(&10)]);
    assert_eq!(at(3, 3), [Some(&10)]);
    assert_eq!(at(4, 5), [Some(&10), Some(&20)]);
    assert_eq!(at(5, 8), [Some(&10), Some(&20), None]);
    assert_eq!(at(10, 11), [None]);
}
