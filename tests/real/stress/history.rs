//! What was asked and answered, and what must therefore hold.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that calls turn on and off.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Switch {
    Volume(usize),
    Snapshot(usize),
    /// Published by the controller.
    Attached(usize),
    Staged(usize),
    /// At the first or second target.
    Published(usize, usize),
}

/// A call that was answered OK: between `begun` and `ended`, the switch was turned `on` or off.
#[derive(Debug, Clone, Copy)]
struct Turn {
    begun: u64,
    ended: u64,
    on: bool,
}

/// A volume that was answered to have at least that size.
#[derive(Debug, Clone, Copy)]
struct Grown {
    begun: u64,
    bytes: u64,
}

#[derive(Default)]
pub(crate) struct History {
    clock: AtomicU64,
    turns: Mutex<BTreeMap<Switch, Vec<Turn>>>,
    grown: Mutex<BTreeMap<usize, Vec<Grown>>>,
}

impl History {
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn turned(&self, switch: Switch, on: bool, begun: u64) {
        let turn = Turn { begun, ended: self.now(), on };
        self.turns.lock().unwrap().entry(switch).or_default().push(turn);
    }

    pub(crate) fn grew(&self, volume: usize, bytes: u64, begun: u64) {
        let grown = Grown { begun, bytes };
        self.grown.lock().unwrap().entry(volume).or_default().push(grown);
    }

    /// What the switch must be, if the answers decide that. A turn that ended before another
    /// began is over and done with; the others may have happened in any order.
    pub(crate) fn must_be(&self, switch: &Switch) -> Option<bool> {
        let turns = self.turns.lock().unwrap();
        let turns = turns.get(switch).map(Vec::as_slice).unwrap_or_default();
        let Some(latest) = turns.iter().map(|turn| turn.begun).max() else {
            return Some(false);
        };
        let mut last = turns.iter().filter(|turn| turn.ended > latest);
        let first = last.next()?.on;
        last.all(|turn| turn.on == first).then_some(first)
    }

    /// What a volume's size must be at least: all growth since it was last deleted.
    pub(crate) fn least_size(&self, volume: usize) -> u64 {
        let turns = self.turns.lock().unwrap();
        let turns = turns.get(&Switch::Volume(volume)).map(Vec::as_slice).unwrap_or_default();
        let deleted = turns.iter().filter(|turn| !turn.on).map(|turn| turn.ended).max();
        let grown = self.grown.lock().unwrap();
        let grown = grown.get(&volume).map(Vec::as_slice).unwrap_or_default();
        let since = grown.iter().filter(|each| deleted.is_none_or(|end| each.begun > end));
        since.map(|each| each.bytes).max().unwrap_or(0)
    }
}

#[test]
fn only_the_last_non_overlapping_change_is_certain() {
    let history = History::default();
    let switch = Switch::Volume(0);
    assert_eq!(history.must_be(&switch), Some(false));
    let first = history.now();
    history.turned(switch.clone(), true, first);
    assert_eq!(history.must_be(&switch), Some(true));
    let (second, third) = (history.now(), history.now());
    history.turned(switch.clone(), false, second);
    assert_eq!(history.must_be(&switch), Some(false));
    history.turned(switch.clone(), true, third);
    assert_eq!(history.must_be(&switch), None);
    let fourth = history.now();
    history.turned(switch.clone(), true, fourth);
    assert_eq!(history.must_be(&switch), Some(true));
}
