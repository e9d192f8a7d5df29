//! Whose turn it is to run lvm.
//!
//! LVM lets those that change a volume group go before those that read it, so under many changes no report would ever come
//! to an end. Here a change waits for the reports that were asked for before it. And as changes wait for each other anyway,
//! only a few processes do so at a time. A change that writers of volumes wait for is urgent: nothing is begun before it ends.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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
    /// Of changes that are under way, or wait for another one.
    urgent: usize,
    is_urgent_running: bool,
}

/// Until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// With its number.
    Report(u64),
    Change,
    Urgent,
}

impl Turns {
    pub(super) fn begin_report(&self) -> Turn<'_> {
        let state = lock(&self.state);
        let mut state = self.wait_while(state, |state| state.urgent > 0);
        let number = state.take_number();
        state.reports.insert(number);
        Turn { turns: self, kind: Kind::Report(number) }
    }

    pub(super) fn begin_change(&self) -> Turn<'_> {
        let mut state = lock(&self.state);
        let number = state.take_number();
        let must_wait = |state: &mut State| {
            let is_behind = state.reports.first().is_some_and(|first| *first < number);
            is_behind || state.changes >= MOST_CHANGES || state.urgent > 0
        };
        state = self.wait_while(state, must_wait);
        state.changes += 1;
        Turn { turns: self, kind: Kind::Change }
    }

    /// One at a time. What is under way is not waited for: it may wait for a lock that another program has.
    pub(super) fn begin_urgent(&self) -> Turn<'_> {
        let mut state = lock(&self.state);
        state.urgent += 1;
        state = self.wait_while(state, |state| state.is_urgent_running);
        state.is_urgent_running = true;
        Turn { turns: self, kind: Kind::Urgent }
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        must_wait: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.changed.wait_while(state, must_wait).unwrap_or_else(PoisonError::into_inner)
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
        match self.kind {
            Kind::Report(number) => drop(state.reports.remove(&number)),
            Kind::Change => state.changes -= 1,
            Kind::Urgent => {
                state.urgent -= 1;
                state.is_urgent_running = false;
            }
        }
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
