//! Snapshots: those of RBD on the volume's image, and their records among the pool's keys.
//!
//! They stay when the volume is deleted: its image then waits in the trash until the last of them
//! is gone. Two snapshots of one volume are of one image, hence can be compared.

use std::sync::Arc;

use orlop_model::{Error, PoolInfo, Result, SnapshotId, SnapshotRecord};
use orlop_sys::ceph::SnapshotRef;
use serde::{Deserialize, Serialize};

use super::super::records::{RecordEntry, Records};

/// Where the data of a snapshot is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotLocation {
    /// The id of an image: names come and go.
    pub(crate) image: String,
    pub(crate) snapshot: String,
    /// The snapshot's number in RBD. A member of a group snapshot is found by it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u64>,
}

impl SnapshotLocation {
    pub(crate) fn reference(&self) -> SnapshotRef<'_> {
        self.number.map_or(SnapshotRef::Name(&self.snapshot), SnapshotRef::Number)
    }
}

pub(crate) type SnapshotEntry = RecordEntry<SnapshotLocation, SnapshotRecord>;

#[derive(Debug)]
pub(in super::super) struct Snapshots {
    info: Arc<PoolInfo>,
    records: Arc<Records>,
}

impl Snapshots {
    pub(super) fn new(info: &Arc<PoolInfo>, records: &Arc<Records>) -> Self {
        Self { info: Arc::clone(info), records: Arc::clone(records) }
    }

    /// The record as it is written, with where its data is.
    pub(in super::super) fn text(&self, id: &SnapshotId) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read snapshot {id}");
        self.records.get(reading, &id.to_string())
    }

    pub(in super::super) fn entry(&self, id: &SnapshotId) -> Result<Option<SnapshotEntry>> {
        self.text(id)?.map(|text| SnapshotEntry::parse(id, &text)).transpose()
    }

    pub(in super::super) fn require(&self, id: &SnapshotId) -> Result<SnapshotEntry> {
        self.entry(id)?.ok_or_else(|| Error::NoSuchSnapshot(id.to_string()))
    }

    /// Is there a record of a snapshot whose data is in this image and whose location `is_meant`?
    pub(in super::super) fn is_any_at(
        &self,
        image_id: &str,
        is_meant: impl Fn(&SnapshotLocation) -> bool,
    ) -> Result<bool> {
        let listing = || format!("find the snapshots of image {image_id}");
        let all = self.records.list(listing, "", &format!("s-{}-", self.info.id), 0)?;
        Ok(all.iter().any(|(_, text)| {
            let location = serde_json::from_slice::<SnapshotLocation>(text);
            location.is_ok_and(|location| location.image == image_id && is_meant(&location))
        }))
    }

    pub(super) fn page(
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
            let page = self.records.list(listing, &last, &prefix, missing)?;
            let Some((key, _)) = page.last() else { break };
            key.clone_into(&mut last);
            for (key, text) in page {
                let entry = key.parse().and_then(|id| SnapshotEntry::parse(&id, &text));
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
}
