//! A snapshot of one image, before its record is written.

use std::sync::Arc;

use orlop_model::{Result, SnapshotId};
use orlop_sys::ceph::{Image, SnapshotRef, Update};
use serde::{Deserialize, Serialize};

use super::catalogue::{SnapshotEntry, SnapshotLocation};
use super::image_lock::{open_to_change, open_to_remove};
use super::intent::{Intended, Intent, Intents, Removal};
use super::layout::{INTENT, purpose_of};
use super::records::Records;
use super::session::Session;

/// A snapshot of this image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct IntendedSnapshot {
    image: String,
}

impl IntendedSnapshot {
    pub(super) fn new(image_id: &str) -> Self {
        Self { image: image_id.to_owned() }
    }
}

impl Intended for IntendedSnapshot {
    const PREFIX: &'static str = INTENT;

    fn is_recorded(&self, records: &Records, name: &str) -> Result<bool> {
        let Some(id) = purpose_of(name).and_then(|purpose| purpose.parse().ok()) else {
            return Ok(false);
        };
        let reading = || format!("read snapshot {id}");
        let Some(text) = records.get(reading, &SnapshotId::to_string(&id))? else {
            return Ok(false);
        };
        let SnapshotLocation { image, snapshot, .. } = SnapshotEntry::parse(&id, &text)?.location;
        Ok(image == self.image && snapshot == name)
    }

    /// If it has clones, librbd keeps it in the trash namespace.
    fn ensure_removed(&self, session: &Session, name: &str) -> Result<Removal> {
        let removing = || format!("remove snapshot {name}");
        let found = session.ask(removing, |io| match open_to_remove(io, &self.image) {
            // The image was removed with its snapshots.
            Err(error) if error.is_not_found() => Ok(true),
            image => {
                let image = image?;
                check_unprotected(&image, &self.image, name)?;
                image.ensure_no_snapshot(name)
            }
        })?;
        Ok(if found { Removal::ForGood } else { Removal::NotFound })
    }
}

/// Removes the snapshot when it is dropped, unless it was committed.
#[derive(Debug)]
pub(super) struct UncommittedSnapshot {
    intent: Intent<IntendedSnapshot>,
}

impl UncommittedSnapshot {
    pub(super) fn take(
        session: &Session,
        intents: &Arc<Intents>,
        image_id: &str,
        purpose: &str,
    ) -> Result<Self> {
        let taking = || format!("take the snapshot {purpose}");
        let intent = intents.begin(purpose, IntendedSnapshot::new(image_id))?;
        session.ask(taking, |io| open_to_change(io, image_id)?.create_snapshot(intent.name()))?;
        Ok(Self { intent })
    }

    pub(super) fn image_id(&self) -> &str {
        &self.intent.what().image
    }

    pub(super) fn name(&self) -> &str {
        self.intent.name()
    }

    pub(super) fn reference(&self) -> SnapshotRef<'_> {
        SnapshotRef::Name(self.name())
    }

    pub(super) fn try_commit(self, update: Update) -> Result<bool> {
        self.intent.try_commit(update)
    }
}

/// librbd does not remove a snapshot that an operator has protected, and reports only that it is in use.
fn check_unprotected(image: &Image, image_id: &str, snapshot: &str) -> orlop_sys::Result<()> {
    if !image.is_protected(snapshot)? {
        return Ok(());
    }
    Err(orlop_sys::Error::HeldByOperator {
        operation: "remove a snapshot of",
        path: image_id.into(),
        reason: format!(
            "it is protected; allow its removal with `rbd snap unprotect --image-id {image_id} --snap \
             {snapshot}`"
        ),
    })
}
