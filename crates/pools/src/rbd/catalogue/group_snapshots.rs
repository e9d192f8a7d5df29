//! Group snapshots: a record among the pool's keys, beside those of the members. All of them are
//! written in one operation, and removed in one.

use std::sync::Arc;

use orlop_model::{GroupSnapshotId, GroupSnapshotRecord, Result};
use serde::{Deserialize, Serialize};

use super::super::records::{RecordEntry, Records};
use super::super::uncommitted_group_snapshot::IntendedGroupSnapshot;

/// Where the data of all members is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupLocation {
    /// What RBD calls it.
    pub(crate) rbd_group: String,
    #[serde(flatten)]
    pub(crate) intended: IntendedGroupSnapshot,
}

pub(crate) type GroupSnapshotEntry = RecordEntry<GroupLocation, GroupSnapshotRecord>;

#[derive(Debug)]
pub(in super::super) struct GroupSnapshots {
    records: Arc<Records>,
}

impl GroupSnapshots {
    pub(super) fn new(records: &Arc<Records>) -> Self {
        Self { records: Arc::clone(records) }
    }

    /// The record as it is written, with where its data is.
    pub(in super::super) fn text(&self, id: &GroupSnapshotId) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read group snapshot {id}");
        self.records.get(reading, &id.to_string())
    }

    pub(in super::super) fn get(
        &self,
        id: &GroupSnapshotId,
    ) -> Result<Option<GroupSnapshotRecord>> {
        let entry = self.text(id)?.map(|text| GroupSnapshotEntry::parse(id, &text)).transpose()?;
        Ok(entry.map(|entry| entry.record))
    }
}
