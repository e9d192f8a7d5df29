//! Whose turn it is to run lvm.
//!
//! LVM lets those that change a volume group go before those that read it, so under many changes no report would ever come
//! to an end. Here a change waits for the reports that were asked for before it. And as changes wait for each other anyway,
//! only a few processes do so at a time.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::poison::lock;

/// What one does before it needs LVM's lock, another can do while the first has it.
const MOST_CHANGES: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number that the next one gets, report or change.
    next: u64,
    reports: BTreeSet<u64>,
    changes: usize,
}

/// Until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    /// Of a report.
    number: Option<u64>,
}

impl Turns {
    pub(super) fn begin_report(&self) -> Turn<'_> {
        let mut state = lock(&self.state);
        let number = state.take_number();
        state.reports.insert(number);
        Turn { turns: self, number: Some(number) }
    }

    pub(super) fn begin_change(&self) -> Turn<'_> {
        let mut state = lock(&self.state);
        let number = state.take_number();
        let must_wait = |state: &mut State| {
            let is_behind = state.reports.first().is_some_and(|first| *first < number);
            is_behind || state.changes >= MOST_CHANGES
        };
        state = self.changed.wait_while(state, must_wait).unwrap_or_else(PoisonError::into_inner);
        state.changes += 1;
        Turn { turns: self, number: None }
    }
}

impl State {
    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.turns.state);
        match self.number {
            Some(number) => drop(state.reports.remove(&number)),
            None => state.changes -= 1,
        }
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
