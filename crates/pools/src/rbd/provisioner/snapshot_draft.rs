//! Taking a snapshot: that of RBD first, its record last.

use std::time::SystemTime;

use orlop_model::{Draft, Error, NewSnapshot, Result, SnapshotId, SnapshotRecord, Timestamp};
use orlop_sys::ceph::Update;

use super::super::catalogue::{SnapshotEntry, SnapshotLocation};
use super::super::image_state::BEING_MADE;
use super::super::uncommitted_snapshot::{IntendedSnapshot, UncommittedSnapshot};
use super::RbdProvisioner;
use crate::recorded::new_snapshot_record;

#[derive(Debug)]
pub(super) struct RbdSnapshotDraft {
    pool: RbdProvisioner,
    image_id: String,
    record: SnapshotRecord,
    snapshot: Option<UncommittedSnapshot>,
}

impl RbdSnapshotDraft {
    pub(super) fn begin(pool: &RbdProvisioner, new: &NewSnapshot) -> Result<Self> {
        // A damaged snapshot keeps its name until an operator has inspected it.
        if pool.catalogue.snapshot_records().entry(&new.id)?.is_some() {
            return Err(busy(&new.id));
        }
        let source = pool.images.require(&new.source.id)?;
        pool.images.check_length(&source)?;
        pool.capacity.check_not_full()?;
        let image_id = source.image_id.clone();
        // Of the volume's size: an interrupted expansion may have left a longer image.
        let record = new_snapshot_record(new, source.record, None);
        Ok(Self { pool: pool.clone(), image_id, record, snapshot: None })
    }

    fn take(&mut self) -> Result<UncommittedSnapshot> {
        let purpose = self.record.id.to_string();
        let taken = self.pool.take_snapshot(&self.image_id, &purpose)?;
        self.record.created = Timestamp::from(SystemTime::now()).after(self.record.created);
        Ok(taken)
    }
}

/// Another process is making the same snapshot, or has just made it.
fn busy(id: &SnapshotId) -> Error {
    Error::busy(format!("snapshot {id}"), BEING_MADE)
}

impl Draft<SnapshotRecord> for RbdSnapshotDraft {
    fn capture(&mut self) -> Result<()> {
        if self.snapshot.is_none() {
            self.snapshot = Some(self.take()?);
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<SnapshotRecord> {
        let taken = match self.snapshot.take() {
            Some(taken) => taken,
            None => self.take()?,
        };
        let Self { pool, record, .. } = *self;
        let (image, snapshot) = (taken.image_id().to_owned(), taken.name().to_owned());
        let location = SnapshotLocation { image, snapshot, number: None };
        let entry = SnapshotEntry { location, record };
        let key = entry.record.id.to_string();
        let update = Update::default().expect(&key, None).set(&key, &entry.text()?);
        if !taken.try_commit(update)? {
            return Err(busy(&entry.record.id));
        }
        pool.intents.remove_all_for::<IntendedSnapshot>(&key);
        Ok(entry.record)
    }
}
