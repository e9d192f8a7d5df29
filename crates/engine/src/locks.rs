//! One lock for each object. A call that meets another on the same object waits for a moment, in the
//! order of arrival, and is then answered "busy"; the orchestrator repeats it (GEN-23).
//!
//! Calls that hold several locks take them in the order of [`Key`]: the kinds as they are listed
//! there, one kind by digest or path. So no two wait for each other.

mod waiter_limit;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orlop_model::{Error, NameDigest, Result, TargetPath};

pub use waiter_limit::WaiterLimit;
use waiter_limit::WaiterSlot;

/// For one object. A call that waits keeps a thread and its permit, and one slow
/// object must not use up those of its pool.
const MAX_WAITERS_OF_ONE: usize = 16;

/// Create and delete of one volume meet on the digest of its name, whatever the pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    GroupSnapshot(NameDigest),
    VolumeGroup(NameDigest),
    Volume(NameDigest),
    Snapshot(NameDigest),
    /// Of a volume: one call at a time freezes its writers, so its snapshots are taken one after the other.
    Capture(NameDigest),
    /// Of this node. A call checks what is mounted there and then changes it; no other volume's call may come between.
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

const OTHER_CALL: &str = "another call on it is running";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockMode {
    Exclusive,
    Shared,
}

/// The holders of one object's lock, and the calls that wait for it.
#[derive(Debug, Default)]
struct LockEntry {
    writer: bool,
    readers: usize,
    queue: VecDeque<(u64, LockMode)>,
}

impl LockEntry {
    fn is_free_for(&self, mode: LockMode) -> bool {
        match mode {
            LockMode::Exclusive => !self.writer && self.readers == 0,
            LockMode::Shared => !self.writer,
        }
    }

    /// Nothing that came earlier and excludes it is still waiting.
    fn is_turn_of(&self, ticket: u64, mode: LockMode) -> bool {
        let mut earlier = self.queue.iter().take_while(|(other, _)| *other != ticket);
        match mode {
            LockMode::Exclusive => earlier.next().is_none(),
            LockMode::Shared => earlier.all(|(_, other)| *other == LockMode::Shared),
        }
    }

    fn take(&mut self, mode: LockMode) {
        match mode {
            LockMode::Exclusive => self.writer = true,
            LockMode::Shared => self.readers += 1,
        }
    }

    fn release(&mut self, mode: LockMode) {
        match mode {
            LockMode::Exclusive => self.writer = false,
            LockMode::Shared => self.readers = self.readers.saturating_sub(1),
        }
    }

    fn is_unused(&self) -> bool {
        !self.writer && self.readers == 0 && self.queue.is_empty()
    }
}

#[derive(Debug, Default)]
struct LockState {
    entries: HashMap<Key, LockEntry>,
    tickets: u64,
}

impl LockState {
    fn forget_if_unused(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(LockEntry::is_unused) {
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
    state: Mutex<LockState>,
    changed: Condvar,
}

impl Table {
    /// The state is consistent between any two statements, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, LockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Locks {
    table: Arc<Table>,
    timeout: Duration,
    /// The deadline of a call that takes several locks, for all of them.
    deadline: Option<Instant>,
    waiters: WaiterLimit,
}

/// Released when dropped.
#[derive(Debug)]
pub(crate) struct LockGuard {
    table: Arc<Table>,
    key: Key,
    mode: LockMode,
}

impl Locks {
    /// `timeout` is how long a lock is waited for.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { table: Arc::default(), timeout, deadline: None, waiters: WaiterLimit::default() }
    }

    /// The same locks, for a call that waits under this limit.
    pub(crate) fn with_waiter_limit(&self, waiters: &WaiterLimit) -> Self {
        Self { waiters: waiters.clone(), ..self.clone() }
    }

    /// For a call that takes several: all together are waited for as long as one is. Else it would
    /// hold the first of them, and keep others waiting, for as often as it has to wait.
    pub(crate) fn with_one_deadline(&self) -> Self {
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + self.timeout);
        Self { deadline: Some(deadline), ..self.clone() }
    }

    /// Does no call have or want this lock at the moment?
    pub(crate) fn is_volume_free(&self, digest: &NameDigest) -> bool {
        let state = self.table.state();
        state.entries.get(&Key::Volume(digest.clone())).is_none_or(LockEntry::is_unused)
    }

    pub(crate) fn volume(&self, digest: &NameDigest) -> Result<LockGuard> {
        self.exclusive(Key::Volume(digest.clone()))
    }

    /// For a call that mounts the volume at a path of this node, or unmounts it there.
    pub(crate) fn volume_at(
        &self,
        digest: &NameDigest,
        path: &TargetPath,
    ) -> Result<(LockGuard, LockGuard)> {
        let locks = self.with_one_deadline();
        Ok((locks.volume(digest)?, locks.exclusive(Key::Path(path.clone()))?))
    }

    /// The shared lock of a copy source: several calls may copy it, and none may change it.
    pub(crate) fn source_volume(&self, digest: &NameDigest) -> Result<LockGuard> {
        self.shared(Key::Volume(digest.clone()))
    }

    pub(crate) fn snapshot(&self, digest: &NameDigest) -> Result<LockGuard> {
        self.exclusive(Key::Snapshot(digest.clone()))
    }

    pub(crate) fn exclusive(&self, key: Key) -> Result<LockGuard> {
        self.acquire(key, LockMode::Exclusive)
    }

    /// For sources that are only read: many copies of one may be made at once.
    pub(crate) fn shared(&self, key: Key) -> Result<LockGuard> {
        self.acquire(key, LockMode::Shared)
    }

    /// All of one kind, in the order that all keep to.
    pub(crate) fn all(
        &self,
        keys: BTreeSet<Key>,
        take: impl Fn(&Self, Key) -> Result<LockGuard>,
    ) -> Result<Vec<LockGuard>> {
        let locks = self.with_one_deadline();
        keys.into_iter().map(|key| take(&locks, key)).collect()
    }

    fn acquire(&self, key: Key, mode: LockMode) -> Result<LockGuard> {
        let mut state = self.table.state();
        let entry = state.entries.entry(key.clone()).or_default();
        if entry.queue.is_empty() && entry.is_free_for(mode) {
            entry.take(mode);
        } else {
            self.wait(state, &key, mode)?;
        }
        Ok(LockGuard { table: Arc::clone(&self.table), key, mode })
    }

    fn wait(&self, mut state: MutexGuard<'_, LockState>, key: &Key, mode: LockMode) -> Result<()> {
        let Some(_slot) = self.try_wait(&state, key) else {
            state.forget_if_unused(key);
            return Err(Error::busy(key.describe(), OTHER_CALL));
        };
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + self.timeout);
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
        // Calls behind it in the queue may proceed now.
        self.table.changed.notify_all();
        if granted { Ok(()) } else { Err(Error::busy(key.describe(), OTHER_CALL)) }
    }

    fn try_wait(&self, state: &LockState, key: &Key) -> Option<WaiterSlot> {
        let others = state.entries.get(key).map_or(0, |entry| entry.queue.len());
        if self.timeout.is_zero() || others >= MAX_WAITERS_OF_ONE {
            return None;
        }
        self.waiters.try_add()
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

impl Drop for LockGuard {
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
