//! Snapshots: those of RBD on the volume's image, and their records among the pool's keys.
//!
//! They stay when the volume is deleted: its image then waits in the trash until the last of them
//! is gone. Two snapshots of one volume are of one image, hence can be compared.

use std::sync::Arc;
use std::time::SystemTime;

use orlop_model::record::RECORD_VERSION;
use orlop_model::{Draft, Error, NewSnapshot, Result, SnapshotId, SnapshotRecord};
use orlop_sys::ceph::{Outcome, SnapshotRef, Update};
use serde::{Deserialize, Serialize};

use super::cut::{Cut, OfImage};
use super::pending::dropped;
use super::store::Store;
use super::volume_records::Known;
use crate::recorded::parse_record;

/// Where the data of a snapshot is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The id of an image: names come and go.
    pub(crate) image: String,
    pub(crate) snapshot: String,
    /// Of one that was cut together with others: it is found by this alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u64>,
}

impl Place {
    pub(crate) fn at(&self) -> SnapshotRef<'_> {
        self.number.map_or(SnapshotRef::Name(&self.snapshot), SnapshotRef::Number)
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    #[serde(flatten)]
    pub(crate) place: Place,
    #[serde(flatten)]
    pub(crate) record: SnapshotRecord,
}

impl Entry {
    pub(crate) fn parse(id: &SnapshotId, text: &[u8]) -> Result<Self> {
        let damaged = |reason| Error::damaged(format!("snapshot {id}"), reason);
        let record = parse_record(id, &"record", text).map_err(damaged)?;
        let place = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        Ok(Self { place, record })
    }

    pub(crate) fn text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            Error::failed(format!("write the record of snapshot {}", self.record.id), error)
        })
    }
}

impl Store {
    fn snapshot_text(&self, id: &SnapshotId) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read snapshot {id}");
        self.record(reading, &id.to_string())
    }

    pub(super) fn snapshot_entry(&self, id: &SnapshotId) -> Result<Option<Entry>> {
        self.snapshot_text(id)?.map(|text| Entry::parse(id, &text)).transpose()
    }

    pub(super) fn require_snapshot(&self, id: &SnapshotId) -> Result<Entry> {
        self.snapshot_entry(id)?.ok_or_else(|| Error::NoSuchSnapshot(id.to_string()))
    }

    pub(super) fn snapshots(
        &self,
        after: Option<&SnapshotId>,
        limit: usize,
    ) -> Result<Vec<SnapshotRecord>> {
        let listing = || format!("list the snapshots of pool {}", self.info.name);
        let prefix = format!("s-{}-", self.info.id);
        let wanted = if limit == 0 { usize::MAX } else { limit };
        let mut last = after.map(SnapshotId::to_string).unwrap_or_default();
        let mut found = Vec::new();
        // Damaged ones are left out, so one page may not be enough.
        while found.len() < wanted {
            let missing = if limit == 0 { 0 } else { wanted - found.len() };
            let page = self.records(listing, &last, &prefix, missing)?;
            let Some((key, _)) = page.last() else { break };
            key.clone_into(&mut last);
            for (key, text) in page {
                let entry = key.parse().and_then(|id| Entry::parse(&id, &text));
                match entry {
                    Ok(entry) => found.push(entry.record),
                    Err(error) => {
                        tracing::warn!(
                            %error,
                            "cannot read a snapshot; it is missing from the list"
                        )
                    }
                }
            }
        }
        Ok(found)
    }

    pub(super) fn begin_snapshot(self: &Arc<Self>, new: &NewSnapshot) -> Result<SnapshotDraft> {
        // A damaged snapshot keeps its name until someone has looked at it.
        if self.snapshot_entry(&new.id)?.is_some() {
            return Err(Error::Busy(format!("snapshot {}", new.id)));
        }
        let source = self.require(&new.source.id)?;
        self.check_any_room()?;
        let image_id = source.image_id.clone();
        let record = new_record(new, source);
        Ok(SnapshotDraft { store: Arc::clone(self), image_id, record, cut: None })
    }

    /// The record goes first, and in its place comes a note that its data may go too: a crash in
    /// between leaves it to the housekeeping.
    pub(super) fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        let Some(text) = self.snapshot_text(id)? else {
            self.forget_cuts_for::<OfImage>(&id.to_string());
            return Ok(());
        };
        let entry = Entry::parse(id, &text)?;
        let Place { image, snapshot, .. } = entry.place;
        let (note, text_of_note) = dropped(&snapshot, OfImage { image })?;
        let key = id.to_string();
        let update =
            Update::default().expect(&key, Some(&text)).remove(&key).set(&note, &text_of_note);
        let deleting = || format!("delete snapshot {id}");
        match self.update_records(deleting, &update)? {
            Outcome::Done => {}
            Outcome::Differs => return Err(Error::Busy(format!("snapshot {id}"))),
        }
        // It is deleted; what goes wrong now costs space until someone has time, not the answer.
        if let Err(error) = self.ensure_swept::<OfImage>(&snapshot) {
            tracing::warn!(%error, "deleted; its space cannot be freed yet and will be retried");
        }
        self.background.wake();
        Ok(())
    }
}

/// Of a snapshot that is cut alone. How large it is, and of when, is known when it is cut.
pub(super) fn new_record(new: &NewSnapshot, source: Known) -> SnapshotRecord {
    SnapshotRecord {
        version: RECORD_VERSION,
        id: new.id.clone(),
        name: new.name.clone(),
        source: source.record.id,
        size_bytes: source.record.capacity_bytes,
        format: new.format,
        capabilities: source.record.capabilities,
        created: SystemTime::now().into(),
        group: None,
        consistency: new.consistency,
    }
}

#[derive(Debug)]
pub(crate) struct SnapshotDraft {
    store: Arc<Store>,
    image_id: String,
    record: SnapshotRecord,
    cut: Option<Cut>,
}

impl SnapshotDraft {
    fn overtaken(id: &SnapshotId) -> Error {
        Error::Busy(format!("snapshot {id}"))
    }
}

impl Draft<SnapshotRecord> for SnapshotDraft {
    fn capture(&mut self) -> Result<()> {
        if self.cut.is_none() {
            let cut = Cut::make(&self.store, &self.image_id, &self.record.id.to_string())?;
            self.record.size_bytes = cut.size;
            self.record.created = SystemTime::now().into();
            self.cut = Some(cut);
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<SnapshotRecord> {
        self.capture()?;
        let Self { store, record, cut, .. } = *self;
        let Some(cut) = cut else { return Err(Self::overtaken(&record.id)) };
        let (image, snapshot) = (cut.image_id().to_owned(), cut.snapshot().to_owned());
        let place = Place { image, snapshot, number: None };
        let entry = Entry { place, record };
        let key = entry.record.id.to_string();
        let update = Update::default().expect(&key, None).set(&key, &entry.text()?);
        if !cut.try_commit(update)? {
            return Err(Self::overtaken(&entry.record.id));
        }
        store.forget_cuts_for::<OfImage>(&key);
        Ok(entry.record)
    }
}
