//! Volumes and snapshots: has each a record, and the logical volume that it speaks of?

use std::sync::Arc;

use orlop_model::{
    BehindDevice, Catalogue, Finding, LabelledDevice, NodeId, SnapshotId, SnapshotRecord, VolumeId,
    VolumeRecord,
};

use super::super::catalogue::LvmCatalogue;
use super::super::objects::{ObjectState, Objects};
use super::super::record_tags::TaggedRecord;
use super::super::report::Lv;
use super::InspectedPool;

/// What the inspection of volumes and of snapshots has in common.
pub(super) trait InspectedRecord: TaggedRecord {
    const IS_READ_ONLY: bool;

    fn objects(catalogue: &LvmCatalogue) -> &Objects<Self>;

    /// What the logical volume has to hold at least.
    fn length(&self) -> u64;
}

impl InspectedRecord for VolumeRecord {
    const IS_READ_ONLY: bool = false;

    fn objects(catalogue: &LvmCatalogue) -> &Objects<Self> {
        catalogue.volume_objects()
    }

    fn length(&self) -> u64 {
        self.capacity_bytes
    }
}

impl InspectedRecord for SnapshotRecord {
    const IS_READ_ONLY: bool = true;

    fn objects(catalogue: &LvmCatalogue) -> &Objects<Self> {
        catalogue.snapshot_objects()
    }

    fn length(&self) -> u64 {
        self.size_bytes
    }
}

impl InspectedPool<'_> {
    /// The records that can be read, and the ids of all that are there, in order.
    pub(super) fn inspect_objects<R>(&mut self) -> (Vec<R>, Vec<R::Id>)
    where
        R: InspectedRecord,
        R::Id: 'static,
    {
        let (mut records, mut ids) = (Vec::new(), Vec::new());
        let catalogue = Arc::clone(&self.catalogue);
        for (id, state) in R::objects(&catalogue).states() {
            let subject = format!("{} {id}", R::KIND);
            let lv = self.lvm.group().lv(&id);
            match state {
                ObjectState::Whole(record) => {
                    self.inspect_lv(&record, &subject, &lv);
                    records.push(record);
                    ids.push(id);
                }
                ObjectState::Damaged(reason) => {
                    self.found(Finding::by_hand(
                        "record-damaged",
                        subject,
                        format!("{reason}, so it answers DATA_LOSS"),
                        format!(
                            "its data is untouched; `lvs -o +lv_tags {lv}` shows its tags, and the files below \
                             /etc/lvm/archive, if LVM keeps them, what they were; restore them with `lvchange`"
                        ),
                    ));
                    ids.push(id);
                }
                ObjectState::Unfinished => self.found_unfinished::<R>(id, subject),
                ObjectState::Foreign => self.found(Finding::by_hand(
                    "foreign",
                    subject,
                    format!("the logical volume {lv} has its name, and is not Orlop's: it has no tag of this pool"),
                    format!("rename or remove {lv}; until then no {} of this id can be made", R::KIND),
                )),
            }
        }
        (records, ids)
    }

    /// While a daemon uses the pool, a draft is no sign of a fault.
    fn found_unfinished<R: InspectedRecord>(&mut self, id: R::Id, subject: String)
    where
        R::Id: 'static,
    {
        if self.in_use {
            return;
        }
        let catalogue = Arc::clone(&self.catalogue);
        self.found(Finding::repairable(
            "leftover",
            subject,
            "an interrupted call left it half-made or half-deleted",
            "remove it, as the next start would",
            move || R::objects(&catalogue).ensure_gone(&id),
        ));
    }

    /// It is larger after an interrupted expansion, which a repeated one finds, or by what LVM rounds up to.
    fn inspect_lv<R: InspectedRecord>(&mut self, record: &R, subject: &str, path: &str) {
        let Some(lv) = self.report.lv(&record.id().to_string()) else { return };
        if R::IS_READ_ONLY && !lv.is_read_only() {
            self.found(Finding::by_hand(
                "writable-snapshot",
                subject,
                format!("{path} can be written to, so it may not hold what its volume held"),
                format!(
                    "delete it if something has written to it, else run `lvchange --permission r {path}`"
                ),
            ));
        }
        if lv.size < record.length() {
            self.found(Finding::by_hand(
                "data-short",
                subject,
                format!("{path} has {} bytes, its record says {}", lv.size, record.length()),
                "something made it smaller; restore it from a backup (extending it would put zeroes where data was)",
            ));
        }
    }

    /// Logical volumes with tags of ours and another name, or of another pool.
    pub(super) fn inspect_strays(&mut self) {
        let is_stray = |lv: &&Lv| {
            self.catalogue.is_own(lv) && lv.name != self.thin_pool.name && !self.is_named(lv)
        };
        let strays: Vec<&Lv> = self
            .report
            .volumes
            .iter()
            .filter(is_stray)
            // What is of another thin pool of the group may be another pool's.
            .filter(|lv| lv.thin_pool == self.thin_pool.name)
            .collect();
        for lv in strays {
            let path = self.lvm.group().lv(&lv.name);
            self.found(Finding::by_hand(
                "stray",
                path.clone(),
                format!(
                    "it has tags of Orlop, and is not named after a volume or snapshot of pool {}: it was renamed, or \
                     its tags were copied",
                    self.id
                ),
                format!("rename {path} back, or, if it is a copy, remove the tags that begin with `orlop1:`"),
            ));
        }
    }

    fn is_named(&self, lv: &Lv) -> bool {
        let volume = lv.name.parse::<VolumeId>().map(|id| *id.pool() == self.id);
        let snapshot = lv.name.parse::<SnapshotId>().map(|id| *id.pool() == self.id);
        volume.unwrap_or(false) || snapshot.unwrap_or(false)
    }

    /// The pool is on this machine, so no other node can use its volumes. While a volume of it is attached here, it has
    /// not come from another machine either: then the node id is wrong.
    pub(super) fn inspect_publications(&mut self, volumes: &[VolumeRecord], node: &NodeId) {
        let is_in_it = |it: &&LabelledDevice| it.behind != BehindDevice::Elsewhere;
        let attached = self.devices.iter().find(is_in_it).map(|it| it.device.path.clone());
        for record in volumes {
            let others: Vec<&str> =
                record.published.keys().filter(|id| *id != node).map(NodeId::as_str).collect();
            if others.is_empty() {
                continue;
            }
            let (others, subject) = (others.join(", "), format!("volume {}", record.id));
            if let Some(device) = &attached {
                self.found(Finding::by_hand(
                    "foreign-publication",
                    subject,
                    format!(
                        "it is published to {others}, not to {node}, and {} shows that the pool is in use on this \
                         machine",
                        device.display()
                    ),
                    "run the doctor with the ORLOP_NODE_ID of the daemon that served the pool; if that was on a \
                     machine that is gone, unstage what is in use first",
                ));
                continue;
            }
            let (catalogue, id, node) =
                (Arc::clone(&self.catalogue), record.id.clone(), node.clone());
            let perform = move || {
                let keep = &mut |record: &mut VolumeRecord| {
                    record.published.retain(|id, _| *id == node);
                    Ok(())
                };
                catalogue.update_volume(&id, keep).map(drop)
            };
            let problem = format!("it is published to {others}, but the pool is on this node");
            let act = "take that publication out of its record";
            self.found(Finding::repairable("foreign-publication", subject, problem, act, perform));
        }
    }
}
