//! Snapshots that are made on the cluster before a record names them.
//!
//! An intent is written among the pool's keys first, so that what a daemon that was killed has left
//! is found without looking at every image. The operation that writes the record removes the
//! intent; garbage collection marks the intent as given up before it removes the snapshot. So one
//! of both is refused, and there is neither a record without data nor data that is never found.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use orlop_model::{Error, PoolInfo, Reason, Result};
use orlop_sys::ceph::{Update, UpdateOutcome};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::layout::{new_snapshot_name, purpose_of};
use super::records::Records;
use super::session::Session;

/// No call needs that long from the snapshot to its record.
const ORPHAN_AGE: Duration = Duration::from_secs(3600);

/// What an intent is about, and how it is removed when it became an orphan.
pub(super) trait Intended: Debug + Serialize + DeserializeOwned {
    /// The prefix of the intent's key; the rest of the key is the name.
    const PREFIX: &'static str;

    /// Does a record name it? Then it was committed, and an intent that is there nevertheless was restored from a backup.
    fn is_recorded(&self, records: &Records, name: &str) -> Result<bool>;

    /// Idempotent, and may be done by several processes at once.
    fn ensure_removed(&self, session: &Session, name: &str) -> Result<Removal>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// It was there, or can never be made any more.
    ForGood,
    /// A daemon that is slow may still make it.
    NotFound,
}

/// As it is written in the pool.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IntentRecord<What> {
    #[serde(flatten)]
    what: What,
    /// From when on it may be removed, in seconds since 1970.
    until: u64,
    /// It is being removed: from here on it cannot be committed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    given_up: bool,
}

impl<What: Serialize> IntentRecord<What> {
    fn text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::failed("write an intent", Reason::of(error)))
    }
}

/// The key and the text of an intent to remove something at once.
pub(super) fn to_remove<What: Intended>(name: &str, what: What) -> Result<(String, Vec<u8>)> {
    Ok((key_of::<What>(name), IntentRecord { what, until: 0, given_up: true }.text()?))
}

fn key_of<What: Intended>(name: &str) -> String {
    format!("{}{name}", What::PREFIX)
}

/// What became of orphans.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    pub(super) removed: usize,
    /// Orphans that could not be removed now.
    pub(super) left: usize,
}

/// Dropped, it removes what was made, unless that was committed.
#[derive(Debug)]
pub(super) struct Intent<What: Intended> {
    intents: Arc<Intents>,
    /// A new name, which nothing had before.
    name: String,
    what: What,
    text: Vec<u8>,
    until: u64,
    committed: bool,
}

impl<What: Intended> Intent<What> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn what(&self) -> &What {
        &self.what
    }

    /// To `update` is added what commits it; `false` if something is not as it was expected.
    pub(super) fn try_commit(mut self, update: Update) -> Result<bool> {
        let key = key_of::<What>(&self.name);
        let update = update.expect(&key, Some(&self.text)).remove(&key);
        let writing = || format!("write the record of {}", self.name);
        let outcome = self.intents.records.update(writing, &update);
        self.committed = match &outcome {
            Ok(UpdateOutcome::Done) => true,
            Ok(UpdateOutcome::Differs) => false,
            // Perhaps it was written, and the answer was lost. By the intent, if it is still
            // there, garbage collection finds it later.
            Err(_) => true,
        };
        Ok(outcome? == UpdateOutcome::Done)
    }
}

impl<What: Intended> Drop for Intent<What> {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        if let Err(error) = self.intents.remove(&self.name, &self.what, self.until) {
            tracing::warn!(
                %error,
                name = self.name,
                "cannot remove an orphan now; garbage collection removes it after an hour"
            );
        }
    }
}

#[derive(Debug)]
pub(super) struct Intents {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
    records: Arc<Records>,
}

impl Intents {
    pub(super) fn new(
        session: &Arc<Session>,
        info: &Arc<PoolInfo>,
        records: &Arc<Records>,
    ) -> Self {
        Self { session: Arc::clone(session), info: Arc::clone(info), records: Arc::clone(records) }
    }

    /// From here on it can be made, and is found.
    pub(super) fn begin<What: Intended + Clone>(
        self: &Arc<Self>,
        purpose: &str,
        what: What,
    ) -> Result<Intent<What>> {
        let writing = || format!("take the snapshot {purpose}");
        let until = seconds(SystemTime::now() + ORPHAN_AGE);
        let text = IntentRecord { what: what.clone(), until, given_up: false }.text()?;
        let name = new_snapshot_name(purpose)?;
        let update = Update::default().set(&key_of::<What>(&name), &text);
        self.records.update(writing, &update)?;
        Ok(Intent { intents: Arc::clone(self), name, what, text, until, committed: false })
    }

    /// The intent of what is not there stays as long as a slow daemon may still make it: without the
    /// intent it would never be found.
    /// `false`: then.
    fn remove<What: Intended>(&self, name: &str, what: &What, until: u64) -> Result<bool> {
        if what.is_recorded(&self.records, name)? {
            tracing::warn!(name, "removing the intent of a snapshot that has a record, and stays");
        } else {
            match what.ensure_removed(&self.session, name)? {
                Removal::NotFound if until > seconds(SystemTime::now()) => return Ok(false),
                Removal::NotFound | Removal::ForGood => {}
            }
        }
        let forgetting = || format!("remove the intent {name}");
        let update = Update::default().remove(&key_of::<What>(name));
        self.records.update(forgetting, &update).map(|_| true)
    }

    /// Removes what was given up or orphaned; how many those were.
    pub(super) fn remove_orphans<What: Intended>(&self) -> Result<Orphans> {
        self.remove_named::<What>("", seconds(SystemTime::now()))
    }

    /// What is made, or was given up, needs no such snapshot any more: those that are there are
    /// orphans of killed daemons, or of calls that come too late.
    pub(super) fn remove_all_for<What: Intended>(&self, purpose: &str) {
        if let Err(error) = self.remove_named::<What>(&format!("{purpose}."), u64::MAX) {
            tracing::warn!(
                %error,
                purpose,
                "cannot remove orphans now; garbage collection removes them after an hour"
            );
        }
    }

    /// For an intent that is known to be obsolete, or whose daemon was killed. `Differs`: there is no intent, or
    /// a record names what it is about, which stays.
    pub(super) fn ensure_removed<What: Intended>(&self, name: &str) -> Result<UpdateOutcome> {
        let key = key_of::<What>(name);
        let reading = || format!("read the intent {name}");
        match self.records.get(reading, &key)? {
            None => Ok(UpdateOutcome::Differs),
            Some(text) => {
                let intent: IntentRecord<What> = parsed(&key, &text)?;
                let recorded = intent.what.is_recorded(&self.records, name)?;
                self.remove_one::<What>(name, &text, u64::MAX)?;
                Ok(if recorded { UpdateOutcome::Differs } else { UpdateOutcome::Done })
            }
        }
    }

    /// Is there a record that it was made for, whatever that says, or is it being made or removed?
    pub(super) fn knows<What: Intended>(&self, name: &str) -> Result<bool> {
        let reading = || format!("find what {name} was made for");
        let has = |key: &str| match self.records.get(reading, key) {
            // Then nothing is known, and that is reported elsewhere.
            Err(Error::Damaged { .. }) => Ok(true),
            found => Ok(found?.is_some()),
        };
        let is_recorded = || purpose_of(name).map_or(Ok(false), has);
        // Committed or deleted in between, it has first the one and then the other.
        Ok(is_recorded()? || has(&key_of::<What>(name))? || is_recorded()?)
    }

    fn remove_named<What: Intended>(&self, names: &str, now: u64) -> Result<Orphans> {
        let mut orphans = Orphans::default();
        let listing = || format!("find orphans in pool {}", self.info.name);
        let prefix = key_of::<What>(names);
        for (key, text) in self.records.list(listing, "", &prefix, 0)? {
            let Some(name) = key.strip_prefix(What::PREFIX) else { continue };
            // An orphan that cannot be removed must not prevent that others are removed.
            match self.remove_one::<What>(name, &text, now) {
                Ok(removed) => orphans.removed += usize::from(removed),
                Err(error) => {
                    // What cannot be read is not removed a minute later either.
                    orphans.left += usize::from(!matches!(error, Error::Damaged { .. }));
                    tracing::warn!(%error, key, "cannot remove an orphan; it will be retried");
                }
            }
        }
        Ok(orphans)
    }

    /// `false`: it is too early, or something else was faster.
    fn remove_one<What: Intended>(&self, name: &str, text: &[u8], now: u64) -> Result<bool> {
        let key = key_of::<What>(name);
        let intent: IntentRecord<What> = parsed(&key, text)?;
        if intent.until > now && !intent.given_up {
            return Ok(false);
        }
        let intent = IntentRecord { given_up: true, ..intent };
        let update = Update::default().expect(&key, Some(text)).set(&key, &intent.text()?);
        let claiming = || format!("remove the orphan {name}");
        match self.records.update(claiming, &update)? {
            UpdateOutcome::Done => self.remove(name, &intent.what, intent.until),
            // Committed just now, or removed by another process.
            UpdateOutcome::Differs => Ok(false),
        }
    }
}

fn parsed<What: Intended>(key: &str, text: &[u8]) -> Result<IntentRecord<What>> {
    serde_json::from_slice(text).map_err(|error| Error::damaged(format!("the intent {key}"), error))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
