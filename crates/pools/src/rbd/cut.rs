//! A snapshot of an image that nobody answers for yet.
//!
//! Before it is made there is a note of it among the pool's keys, so that one whose maker died is
//! found without looking at every image. Whoever makes it lasting takes the note away in the same
//! operation: if the note is gone by then, so is the snapshot, and nothing is made.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use orlop_model::{Error, Result};
use orlop_sys::ceph::{Image, Outcome, Update};
use serde::{Deserialize, Serialize};

use super::fence::open_to_change;
use super::layout::{PENDING, RECORDS, new_snapshot_name};
use super::store::Store;

/// Nobody needs that long from the cut of a snapshot to its record.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(3600);

/// What the note says; its key has the snapshot's name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    image: String,
    /// From when on it may be removed, in seconds since 1970.
    until: u64,
}

impl Note {
    fn text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::failed("write a note", error))
    }
}

/// The key and the text of a note that a snapshot of an image may be removed at once.
pub(super) fn dropped(image_id: &str, snapshot: &str) -> Result<(String, Vec<u8>)> {
    let note = Note { image: image_id.to_owned(), until: 0 };
    Ok((key_of(snapshot), note.text()?))
}

fn key_of(snapshot: &str) -> String {
    format!("{PENDING}{snapshot}")
}

/// Dropped, it takes the snapshot away again, unless it was made lasting.
#[derive(Debug)]
pub(super) struct Cut {
    store: Arc<Store>,
    pub(super) image_id: String,
    pub(super) snapshot: String,
    note: Vec<u8>,
    /// Of the image, when it was cut.
    pub(super) size: u64,
    lasting: bool,
}

impl Cut {
    pub(super) fn make(store: &Arc<Store>, image_id: &str, purpose: &str) -> Result<Self> {
        let cutting = || format!("cut {purpose}");
        let until = seconds(SystemTime::now() + GIVEN_UP_AFTER);
        let note = Note { image: image_id.to_owned(), until }.text()?;
        let snapshot = new_snapshot_name(purpose)?;
        let update = Update::default().set(&key_of(&snapshot), &note);
        store.ask(cutting, |io| io.update(RECORDS, &update))?;
        // From here on it is to be taken back.
        let mut cut = Self {
            store: Arc::clone(store),
            image_id: image_id.to_owned(),
            snapshot,
            note,
            size: 0,
            lasting: false,
        };
        let name = cut.snapshot.clone();
        cut.size = store.ask(cutting, |io| {
            let image = open_to_change(io, image_id)?;
            image.create_snapshot(&name)?;
            size_at(&image, &name)
        })?;
        Ok(cut)
    }

    /// To `update` is added what makes the cut lasting; `false` if something is not as it was
    /// expected.
    pub(super) fn try_commit(mut self, update: Update) -> Result<bool> {
        let key = key_of(&self.snapshot);
        let update = update.expect(&key, Some(&self.note)).remove(&key);
        let writing = || format!("write the record of {}", self.snapshot);
        let outcome = self.store.ask(writing, |io| io.update(RECORDS, &update));
        self.lasting = match &outcome {
            Ok(Outcome::Done) => true,
            Ok(Outcome::Differs) => false,
            // Perhaps it was written, and the answer was lost. The note, if it is still there, is
            // good for finding the snapshot later.
            Err(_) => true,
        };
        Ok(outcome? == Outcome::Done)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if self.lasting {
            return;
        }
        let note = Note { image: self.image_id.clone(), until: 0 };
        if let Err(error) = self.store.ensure_uncut(&self.snapshot, &note) {
            tracing::warn!(%error, snapshot = self.snapshot, "a leftover stays for an hour");
        }
    }
}

impl Store {
    /// Clones of it, if there are any, keep it alive out of sight.
    pub(super) fn ensure_uncut(&self, snapshot: &str, note: &Note) -> Result<()> {
        let removing = || format!("remove snapshot {snapshot}");
        self.ask(removing, |io| {
            match open_to_change(io, &note.image) {
                // The image went with all that was in it.
                Err(error) if error.is_not_found() => {}
                image => image?.ensure_no_snapshot(snapshot)?,
            }
            io.update(RECORDS, &Update::default().remove(&key_of(snapshot))).map(drop)
        })
    }

    /// What its maker gave up or left behind.
    pub(super) fn sweep_cuts(&self) -> Result<()> {
        self.sweep_noted(PENDING, seconds(SystemTime::now()))
    }

    /// What is made, or was given up, needs no cut any more: those that are there were left by
    /// processes that were killed, or are of others who come too late.
    pub(super) fn forget_cuts_for(&self, purpose: &str) {
        if let Err(error) = self.sweep_noted(&key_of(&format!("{purpose}.")), u64::MAX) {
            tracing::warn!(%error, purpose, "leftovers stay for an hour");
        }
    }

    fn sweep_noted(&self, prefix: &str, now: u64) -> Result<()> {
        let listing = || format!("look for leftovers in pool {}", self.name);
        for (key, text) in self.ask(listing, |io| io.omap_list(RECORDS, "", prefix, 0))? {
            let Some(snapshot) = key.strip_prefix(PENDING) else { continue };
            // One that cannot be put right must not keep the others from it.
            let swept = match serde_json::from_slice::<Note>(&text) {
                Ok(note) if note.until <= now => self.ensure_uncut(snapshot, &note),
                Ok(_) => Ok(()),
                Err(error) => Err(Error::damaged(format!("the note {key}"), error)),
            };
            if let Err(error) = swept {
                tracing::warn!(%error, key, "a leftover stays");
            }
        }
        Ok(())
    }
}

fn size_at(image: &Image, snapshot: &str) -> orlop_sys::Result<u64> {
    let all = image.snapshots()?;
    match all.into_iter().find(|one| one.name == snapshot) {
        Some(found) => Ok(found.size),
        None => image.size(),
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
