//! What is made on the cluster before anybody answers for it.
//!
//! A note of it among the pool's keys comes first, so that what a maker that died has left is found
//! without looking at every image. Whoever makes it lasting takes the note away in the operation
//! that writes the record; whoever takes it for left behind changes the note first. So one of both
//! is refused, and there is neither a record without data nor data that nobody finds.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use orlop_model::{Error, Result};
use orlop_sys::ceph::{Outcome, Update};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::layout::new_snapshot_name;
use super::store::Store;

/// Nobody needs that long from a cut to its record.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(3600);

/// What can be left behind, and how it goes.
pub(super) trait Leftover: Debug + Serialize + DeserializeOwned {
    /// Of the note's key; the rest of the key is the name.
    const PREFIX: &'static str;

    /// May be repeated, and be done by several at once.
    fn ensure_gone(&self, store: &Store, name: &str) -> Result<Gone>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// It was there, or can never be made any more.
    ForGood,
    /// A maker that is held up may still make it.
    NotFound,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Note<What> {
    #[serde(flatten)]
    what: What,
    /// From when on it may be removed, in seconds since 1970.
    until: u64,
    /// It is being removed: from here on it cannot be made lasting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    given_up: bool,
}

impl<What: Serialize> Note<What> {
    fn text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::failed("write a note", error))
    }
}

/// The key and the text of a note that something may be removed at once.
pub(super) fn dropped<What: Leftover>(name: &str, what: What) -> Result<(String, Vec<u8>)> {
    Ok((key_of::<What>(name), Note { what, until: 0, given_up: true }.text()?))
}

fn key_of<What: Leftover>(name: &str) -> String {
    format!("{}{name}", What::PREFIX)
}

/// Dropped, it takes away again what was made, unless that was made lasting.
#[derive(Debug)]
pub(super) struct Pending<What: Leftover> {
    pub(super) store: Arc<Store>,
    /// That nothing had before.
    pub(super) name: String,
    pub(super) what: What,
    note: Vec<u8>,
    until: u64,
    lasting: bool,
}

impl<What: Leftover + Clone> Pending<What> {
    /// From here on it can be made, and is found.
    pub(super) fn note(store: &Arc<Store>, purpose: &str, what: What) -> Result<Self> {
        let noting = || format!("cut {purpose}");
        let until = seconds(SystemTime::now() + GIVEN_UP_AFTER);
        let note = Note { what: what.clone(), until, given_up: false }.text()?;
        let name = new_snapshot_name(purpose)?;
        let update = Update::default().set(&key_of::<What>(&name), &note);
        store.update_records(noting, &update)?;
        Ok(Self { store: Arc::clone(store), name, what, note, until, lasting: false })
    }
}

impl<What: Leftover> Pending<What> {
    /// To `update` is added what makes it lasting; `false` if something is not as it was expected.
    pub(super) fn try_commit(mut self, update: Update) -> Result<bool> {
        let key = key_of::<What>(&self.name);
        let update = update.expect(&key, Some(&self.note)).remove(&key);
        let writing = || format!("write the record of {}", self.name);
        let outcome = self.store.update_records(writing, &update);
        self.lasting = match &outcome {
            Ok(Outcome::Done) => true,
            Ok(Outcome::Differs) => false,
            // Perhaps it was written, and the answer was lost. The note, if it is still there, is
            // good for finding it later.
            Err(_) => true,
        };
        Ok(outcome? == Outcome::Done)
    }
}

impl<What: Leftover> Drop for Pending<What> {
    fn drop(&mut self) {
        if self.lasting {
            return;
        }
        if let Err(error) = self.store.take_away(&self.name, &self.what, self.until) {
            tracing::warn!(
                %error,
                name = self.name,
                "cannot remove an orphan now; garbage collection removes it after an hour"
            );
        }
    }
}

impl Store {
    /// The note of what is not there stays as long as a slow maker may still make it: without the
    /// note it would never be found.
    fn take_away<What: Leftover>(&self, name: &str, what: &What, until: u64) -> Result<()> {
        match what.ensure_gone(self, name)? {
            Gone::NotFound if until > seconds(SystemTime::now()) => return Ok(()),
            Gone::NotFound | Gone::ForGood => {}
        }
        let forgetting = || format!("forget what was left of {name}");
        let update = Update::default().remove(&key_of::<What>(name));
        self.update_records(forgetting, &update).map(drop)
    }

    /// What its maker gave up or left behind.
    pub(super) fn sweep<What: Leftover>(&self) -> Result<()> {
        self.sweep_noted::<What>("", seconds(SystemTime::now()))
    }

    /// What is made, or was given up, needs no cut any more: those that are there were left by
    /// processes that were killed, or are of others who come too late.
    pub(super) fn forget_cuts_for<What: Leftover>(&self, purpose: &str) {
        if let Err(error) = self.sweep_noted::<What>(&format!("{purpose}."), u64::MAX) {
            tracing::warn!(
                %error,
                purpose,
                "cannot remove orphans now; garbage collection removes them after an hour"
            );
        }
    }

    /// Of what is known to be needed no more, or whose maker does no more. `Differs`: there is no note.
    pub(super) fn ensure_swept<What: Leftover>(&self, name: &str) -> Result<Outcome> {
        let key = key_of::<What>(name);
        let reading = || format!("read the note of {name}");
        match self.record(reading, &key)? {
            None => Ok(Outcome::Differs),
            Some(text) => self.sweep_one::<What>(name, &text, u64::MAX).map(|()| Outcome::Done),
        }
    }

    fn sweep_noted<What: Leftover>(&self, names: &str, now: u64) -> Result<()> {
        let listing = || format!("look for leftovers in pool {}", self.info.name);
        let prefix = key_of::<What>(names);
        for (key, text) in self.records(listing, "", &prefix, 0)? {
            let Some(name) = key.strip_prefix(What::PREFIX) else { continue };
            // One that cannot be put right must not keep the others from it.
            if let Err(error) = self.sweep_one::<What>(name, &text, now) {
                tracing::warn!(%error, key, "cannot remove an orphan; it will be retried");
            }
        }
        Ok(())
    }

    fn sweep_one<What: Leftover>(&self, name: &str, text: &[u8], now: u64) -> Result<()> {
        let key = key_of::<What>(name);
        let note: Note<What> = serde_json::from_slice(text)
            .map_err(|error| Error::damaged(format!("the note {key}"), error))?;
        if note.until > now && !note.given_up {
            return Ok(());
        }
        let note = Note { given_up: true, ..note };
        let update = Update::default().expect(&key, Some(text)).set(&key, &note.text()?);
        let claiming = || format!("take away what was left of {name}");
        match self.update_records(claiming, &update)? {
            Outcome::Done => self.take_away(name, &note.what, note.until),
            // Made lasting just now, or taken away by another.
            Outcome::Differs => Ok(()),
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
