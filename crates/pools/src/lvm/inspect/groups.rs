//! Groups: is every member there, and every member's group?

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use orlop_model::{
    Catalogue, Finding, SnapshotId, SnapshotRecord, VolumeGroupRecord, VolumeId, VolumeRecord,
};

use super::super::pool_records::PoolRecords;
use super::super::record_tags::TaggedRecord;
use super::InspectedPool;

impl InspectedPool<'_> {
    pub(super) fn inspect_groups(
        &mut self,
        snapshots: &[SnapshotRecord],
        volumes: &[VolumeRecord],
    ) {
        let catalogue = Arc::clone(&self.catalogue);
        self.inspect_records(catalogue.group_snapshot_records());
        self.inspect_records(catalogue.volume_group_records());
        let there: BTreeSet<&SnapshotId> = snapshots.iter().map(|snapshot| &snapshot.id).collect();
        for group in catalogue.group_snapshot_records().page(None, 0) {
            let missing = listed(group.members.iter().filter(|member| !there.contains(member)));
            if !missing.is_empty() {
                self.found(Finding::by_hand(
                    "member-missing",
                    format!("group snapshot {}", group.id),
                    format!("its members {missing} are gone"),
                    "the others can still be restored; delete the group when you have done so",
                ));
            }
        }
        self.inspect_members(snapshots);
        self.inspect_volume_groups(volumes);
    }

    fn inspect_records<R: TaggedRecord>(&mut self, records: &PoolRecords<R>) {
        let lv = self.lvm.group().lv(&self.thin_pool.name);
        for (id, reason) in records.unreadable() {
            self.found(Finding::by_hand(
                "record-damaged",
                format!("{} {id}", R::KIND),
                format!("{reason}, so it answers DATA_LOSS"),
                format!("`lvs -o +lv_tags {lv}` shows the tags of the thin pool, which hold it; restore them"),
            ));
        }
    }

    /// A daemon that was killed has not finished or not deleted the group.
    fn inspect_members(&mut self, snapshots: &[SnapshotRecord]) {
        if self.in_use {
            return;
        }
        for snapshot in snapshots.iter().filter(|snapshot| !self.catalogue.is_visible(snapshot)) {
            let Some(group) = &snapshot.group else { continue };
            let (catalogue, id) = (Arc::clone(&self.catalogue), snapshot.id.clone());
            self.findings.push(Finding::repairable(
                "leftover",
                format!("snapshot {id}"),
                format!("it is a member of {group}, which an interrupted call has not made or has deleted"),
                "remove it, as the next start would",
                move || catalogue.snapshot_objects().ensure_gone(&id),
            ));
        }
    }

    fn inspect_volume_groups(&mut self, volumes: &[VolumeRecord]) {
        let there: BTreeSet<&VolumeId> = volumes.iter().map(|volume| &volume.id).collect();
        for group in self.catalogue.volume_group_records().page(None, 0) {
            let (kept, gone): (BTreeSet<VolumeId>, BTreeSet<VolumeId>) =
                group.members.iter().cloned().partition(|member| there.contains(member));
            if gone.is_empty() {
                continue;
            }
            let catalogue = Arc::clone(&self.catalogue);
            let subject = format!("volume group {}", group.id);
            let after = VolumeGroupRecord { members: kept, ..group.clone() };
            self.findings.push(Finding::repairable(
                "member-missing",
                subject,
                format!("its volumes {} are gone", listed(gone.iter())),
                "take them out of the group",
                move || catalogue.save_volume_group(&after, Some(&group)),
            ));
        }
    }
}

fn listed(ids: impl Iterator<Item = impl Display>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(", ")
}
