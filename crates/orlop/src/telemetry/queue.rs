//! Lines on their way to stderr. A pipe that is full stops whatever writes to it, so only one thread
//! does, and nothing else in the process waits for it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is written next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Line(Vec<u8>),
    /// This many lines found no room.
    Dropped(u64),
}

pub(super) struct LogQueue {
    /// In bytes.
    limit: usize,
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    /// Since the start.
    dropped_ever: u64,
    /// Why the process ends.
    reason: Option<Vec<u8>>,
    /// An entry was taken and is not written yet.
    is_writing: bool,
}

impl QueueState {
    fn is_idle(&self) -> bool {
        !self.has_entry() && !self.is_writing
    }

    fn has_entry(&self) -> bool {
        !self.lines.is_empty() || self.dropped > 0 || self.reason.is_some()
    }

    fn take(&mut self) -> Option<Entry> {
        if let Some(line) = self.lines.pop_front() {
            self.bytes -= line.len();
            return Some(Entry::Line(line));
        }
        match std::mem::take(&mut self.dropped) {
            0 => self.reason.take().map(Entry::Line),
            lines => Some(Entry::Dropped(lines)),
        }
    }
}

impl LogQueue {
    pub(super) const fn new(limit: usize) -> Self {
        let state = QueueState {
            lines: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            dropped_ever: 0,
            reason: None,
            is_writing: false,
        };
        Self { limit, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Never waits. Once a line found no room, no other is taken until all before it are written, so
    /// that the lines that are missing were next to each other.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.dropped > 0 || state.bytes + line.len() > self.limit {
            state.dropped += 1;
            state.dropped_ever += 1;
        } else {
            state.bytes += line.len();
            state.lines.push_back(line.to_owned());
        }
        self.changed.notify_all();
    }

    /// Since the start, also those that were reported.
    pub(super) fn dropped_ever(&self) -> u64 {
        self.lock().dropped_ever
    }

    /// Written after all other lines, for which there is always room.
    pub(super) fn set_reason(&self, line: &[u8]) {
        self.lock().reason = Some(line.to_owned());
        self.changed.notify_all();
    }

    /// Waits for one. The caller says [`Self::written`] before it takes another.
    pub(super) fn next(&self) -> Entry {
        let mut state = self.lock();
        loop {
            if let Some(entry) = state.take() {
                state.is_writing = true;
                return entry;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`Self::next`], but does not wait.
    pub(super) fn try_next(&self) -> Option<Entry> {
        self.lock().take()
    }

    pub(super) fn written(&self) {
        self.lock().is_writing = false;
        self.changed.notify_all();
    }

    /// True once all is written; false if that takes longer.
    pub(super) fn wait_until_written(&self, timeout: Duration) -> bool {
        let busy = |state: &mut QueueState| !state.is_idle();
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
