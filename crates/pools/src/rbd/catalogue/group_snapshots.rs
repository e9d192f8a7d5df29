//! Group snapshots: a record among the pool's keys, beside those of the members. All of them are
//! written in one operation, and removed in one.

use std::sync::Arc;

use orlop_model::{Error, GroupSnapshotId, GroupSnapshotRecord, Reason, Result};
use serde::{Deserialize, Serialize};

use super::super::records::Records;
use super::super::uncommitted_group_snapshot::IntendedGroupSnapshot;
use crate::recorded::parse_record;

/// Where the data of all members is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupLocation {
    /// What RBD calls it.
    pub(crate) rbd_group: String,
    #[serde(flatten)]
    pub(crate) intended: IntendedGroupSnapshot,
}

#[derive(Debug, Serialize)]
pub(crate) struct GroupSnapshotEntry {
    #[serde(flatten)]
    pub(crate) location: GroupLocation,
    #[serde(flatten)]
    pub(crate) record: GroupSnapshotRecord,
}

impl GroupSnapshotEntry {
    pub(crate) fn parse(id: &GroupSnapshotId, text: &[u8]) -> Result<Self> {
        let damaged = |reason| Error::damaged(format!("group snapshot {id}"), reason);
        let record = parse_record(id, &"record", text).map_err(damaged)?;
        let location = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        Ok(Self { location, record })
    }

    pub(crate) fn text(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            Error::failed(
                format!("write the record of group snapshot {}", self.record.id),
                Reason::of(error),
            )
        })
    }
}

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
