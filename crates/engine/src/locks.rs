//! One lock for each object, taken without waiting: a call that meets another on the same
//! object is answered "busy" and comes again (GEN-23). No order of locking is needed, as
//! nobody waits while holding one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlop_model::{Error, NameDigest, Result};

/// Create and delete of one volume meet on the digest of its name, whatever the pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Volume(NameDigest),
    Snapshot(NameDigest),
    GroupSnapshot(NameDigest),
    VolumeGroup(NameDigest),
}

impl Key {
    fn describe(&self) -> String {
        match self {
            Self::Volume(digest) => format!("volume {}", digest.as_str()),
            Self::Snapshot(digest) => format!("snapshot {}", digest.as_str()),
            Self::GroupSnapshot(digest) => format!("group snapshot {}", digest.as_str()),
            Self::VolumeGroup(digest) => format!("volume group {}", digest.as_str()),
        }
    }
}

#[derive(Debug)]
enum Holders {
    One,
    Readers(usize),
}

type Table = Mutex<HashMap<Key, Holders>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Locks(Arc<Table>);

/// Released when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    table: Arc<Table>,
    key: Key,
}

/// The table is consistent between any two statements, so a panic elsewhere does not spoil it.
fn entries(table: &Table) -> MutexGuard<'_, HashMap<Key, Holders>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Locks {
    pub(crate) fn try_exclusive(&self, key: Key) -> Result<Held> {
        let mut held = entries(&self.0);
        if held.contains_key(&key) {
            return Err(Error::Busy(key.describe()));
        }
        held.insert(key.clone(), Holders::One);
        Ok(Held { table: Arc::clone(&self.0), key })
    }

    /// For sources that are only read: many restores of one snapshot may run at once.
    pub(crate) fn try_shared(&self, key: Key) -> Result<Held> {
        let mut held = entries(&self.0);
        match held.get_mut(&key) {
            Some(Holders::One) => return Err(Error::Busy(key.describe())),
            Some(Holders::Readers(count)) => *count += 1,
            None => {
                held.insert(key.clone(), Holders::Readers(1));
            }
        }
        Ok(Held { table: Arc::clone(&self.0), key })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = entries(&self.table);
        match held.get_mut(&self.key) {
            Some(Holders::Readers(count)) if *count > 1 => *count -= 1,
            Some(Holders::Readers(_) | Holders::One) | None => {
                held.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn key(name: &str) -> Key {
        Key::Volume(NameDigest::of_text(name))
    }

    #[test]
    fn an_exclusive_lock_is_held_by_one() {
        let locks = Locks::default();
        let held = locks.try_exclusive(key("a")).unwrap();
        assert!(matches!(locks.try_exclusive(key("a")), Err(Error::Busy(_))));
        assert!(matches!(locks.try_shared(key("a")), Err(Error::Busy(_))));
        assert!(locks.try_exclusive(key("b")).is_ok());
        drop(held);
        assert!(locks.try_exclusive(key("a")).is_ok());
    }

    #[test]
    fn readers_share_and_the_last_one_releases() {
        let locks = Locks::default();
        let first = locks.try_shared(key("a")).unwrap();
        let second = locks.try_shared(key("a")).unwrap();
        drop(first);
        assert!(locks.try_exclusive(key("a")).is_err());
        drop(second);
        assert!(locks.try_exclusive(key("a")).is_ok());
    }

    #[test]
    fn a_volume_and_a_snapshot_of_one_name_do_not_meet() {
        let locks = Locks::default();
        let _volume = locks.try_exclusive(key("a")).unwrap();
        assert!(locks.try_exclusive(Key::Snapshot(NameDigest::of_text("a"))).is_ok());
    }
}
