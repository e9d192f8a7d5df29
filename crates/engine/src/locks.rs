//! One lock for each object. A call that meets another on the same object waits for a moment, in the
//! order of arrival, and is then answered "busy" and comes again (GEN-23).
//!
//! Calls that hold several locks take them in the order of [`Key`]: the kinds as they are listed
//! there, one kind by digest or path. So no two wait for each other.

mod waiting_room;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orlop_model::{Error, NameDigest, Result, TargetPath};

use waiting_room::Seat;
pub use waiting_room::WaitingRoom;

/// For one object. A call that waits keeps a thread and its place among the operations, and one slow
/// object must not use up those of its pool.
const MOST_FOR_ONE: usize = 16;

/// Create and delete of one volume meet on the digest of its name, whatever the pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    GroupSnapshot(NameDigest),
    VolumeGroup(NameDigest),
    Volume(NameDigest),
    Snapshot(NameDigest),
    /// Of a volume: its writers are held still by one, and its snapshots follow each other.
    Capture(NameDigest),
    /// Of this node. What is there is looked at and then changed, and volumes must not do so in turn.
    Path(TargetPath),
}

impl Key {
    fn describe(&self) -> String {
        match self {
            Self::Volume(digest) | Self::Capture(digest) => format!("volume {}", digest.as_str()),
            Self::Snapshot(digest) => format!("snapshot {}", digest.as_str()),
            Self::GroupSnapshot(digest) => format!("group snapshot {}", digest.as_str()),
            Self::VolumeGroup(digest) => format!("volume group {}", digest.as_str()),
            Self::Path(path) => format!("path {path}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Exclusive,
    Shared,
}

/// Who has the lock of one object, and who wants it.
#[derive(Debug, Default)]
struct Entry {
    writer: bool,
    readers: usize,
    queue: VecDeque<(u64, Mode)>,
}

impl Entry {
    fn is_free_for(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => !self.writer && self.readers == 0,
            Mode::Shared => !self.writer,
        }
    }

    /// Nothing that came earlier and excludes it is still waiting.
    fn is_turn_of(&self, ticket: u64, mode: Mode) -> bool {
        let mut earlier = self.queue.iter().take_while(|(other, _)| *other != ticket);
        match mode {
            Mode::Exclusive => earlier.next().is_none(),
            Mode::Shared => earlier.all(|(_, other)| *other == Mode::Shared),
        }
    }

    fn take(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.writer = true,
            Mode::Shared => self.readers += 1,
        }
    }

    fn release(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.writer = false,
            Mode::Shared => self.readers = self.readers.saturating_sub(1),
        }
    }

    fn is_unused(&self) -> bool {
        !self.writer && self.readers == 0 && self.queue.is_empty()
    }
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    tickets: u64,
}

impl State {
    fn forget_if_unused(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(Entry::is_unused) {
            self.entries.remove(key);
        }
    }

    fn leave_queue(&mut self, key: &Key, ticket: u64) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.queue.retain(|(other, _)| *other != ticket);
        }
        self.forget_if_unused(key);
    }
}

#[derive(Debug, Default)]
struct Table {
    state: Mutex<State>,
    changed: Condvar,
}

impl Table {
    /// The state is consistent between any two statements, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Locks {
    table: Arc<Table>,
    patience: Duration,
    /// Of a call that takes several, for all of them.
    deadline: Option<Instant>,
    room: WaitingRoom,
}

/// Released when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    table: Arc<Table>,
    key: Key,
    mode: Mode,
}

impl Locks {
    /// `patience` is how long a lock is waited for.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { table: Arc::default(), patience, deadline: None, room: WaitingRoom::default() }
    }

    /// The same locks, for a call that waits in this room.
    pub(crate) fn waited_for_in(&self, room: &WaitingRoom) -> Self {
        Self { room: room.clone(), ..self.clone() }
    }

    /// For a call that takes several: all together are waited for as long as one is. Else it would
    /// hold the first of them, and keep others waiting, for as often as it has to wait.
    pub(crate) fn with_one_deadline(&self) -> Self {
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + self.patience);
        Self { deadline: Some(deadline), ..self.clone() }
    }

    pub(crate) fn exclusive(&self, key: Key) -> Result<Held> {
        self.acquire(key, Mode::Exclusive)
    }

    /// For sources that are only read: many copies of one may be made at once.
    pub(crate) fn shared(&self, key: Key) -> Result<Held> {
        self.acquire(key, Mode::Shared)
    }

    /// All of one kind, in the order that all keep to.
    pub(crate) fn all(
        &self,
        keys: BTreeSet<Key>,
        take: impl Fn(&Self, Key) -> Result<Held>,
    ) -> Result<Vec<Held>> {
        let locks = self.with_one_deadline();
        keys.into_iter().map(|key| take(&locks, key)).collect()
    }

    fn acquire(&self, key: Key, mode: Mode) -> Result<Held> {
        let mut state = self.table.state();
        let entry = state.entries.entry(key.clone()).or_default();
        if entry.queue.is_empty() && entry.is_free_for(mode) {
            entry.take(mode);
        } else {
            self.wait(state, &key, mode)?;
        }
        Ok(Held { table: Arc::clone(&self.table), key, mode })
    }

    fn wait(&self, mut state: MutexGuard<'_, State>, key: &Key, mode: Mode) -> Result<()> {
        let Some(_seat) = self.try_enter(&state, key) else {
            state.forget_if_unused(key);
            return Err(Error::Busy(key.describe()));
        };
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + self.patience);
        state.tickets += 1;
        let ticket = state.tickets;
        state.entries.entry(key.clone()).or_default().queue.push_back((ticket, mode));
        let granted = loop {
            let entry = state.entries.entry(key.clone()).or_default();
            if entry.is_free_for(mode) && entry.is_turn_of(ticket, mode) {
                entry.take(mode);
                break true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            let woken = self.table.changed.wait_timeout(state, left);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        };
        state.leave_queue(key, ticket);
        drop(state);
        // Those behind it may go now.
        self.table.changed.notify_all();
        if granted { Ok(()) } else { Err(Error::Busy(key.describe())) }
    }

    fn try_enter(&self, state: &State, key: &Key) -> Option<Seat> {
        let others = state.entries.get(key).map_or(0, |entry| entry.queue.len());
        if self.patience.is_zero() || others >= MOST_FOR_ONE {
            return None;
        }
        self.room.try_enter()
    }

    #[cfg(test)]
    fn waiting_for(&self, key: &Key) -> usize {
        self.table.state().entries.get(key).map_or(0, |entry| entry.queue.len())
    }

    #[cfg(test)]
    fn is_forgotten(&self) -> bool {
        self.table.state().entries.is_empty()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.table.state();
        if let Some(entry) = state.entries.get_mut(&self.key) {
            entry.release(self.mode);
        }
        state.forget_if_unused(&self.key);
        drop(state);
        self.table.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
