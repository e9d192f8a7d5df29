//! Groups: is every member there, and every member's group?

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use orlop_model::{
    Finding, GroupSnapshotId, GroupSnapshotRecord, Result, SnapshotRecord, VolumeGroupRecord,
    VolumeId,
};
use orlop_sys::file;

use super::super::catalogue::record_index::{SUFFIX, UNFINISHED};
use super::super::failure::cannot;
use super::{InspectedPool, entries, name_of};
use crate::recorded::{RecordFailure, Recorded, read_record, to_text};

impl InspectedPool {
    pub(super) fn inspect_groups(&mut self, snapshots: &[SnapshotRecord]) -> Result<()> {
        let layout = Arc::clone(&self.layout);
        let (whole, damaged) =
            self.inspect_records::<GroupSnapshotRecord>(&layout.group_snapshots())?;
        self.inspect_group_snapshots(&whole);
        let known: BTreeSet<&GroupSnapshotId> =
            whole.iter().map(|group| &group.id).chain(&damaged).collect();
        self.inspect_members(snapshots, &known);
        let (groups, _) = self.inspect_records::<VolumeGroupRecord>(&layout.volume_groups())?;
        self.inspect_volume_groups(groups, &layout.volume_groups());
        Ok(())
    }

    /// The records that can be read, and the ids of those that cannot or are unfinished.
    fn inspect_records<R: Recorded>(&mut self, directory: &Path) -> Result<(Vec<R>, Vec<R::Id>)> {
        let (mut whole, mut damaged) = (Vec::new(), Vec::new());
        for path in entries(directory)? {
            let name = name_of(&path);
            // What a crash left of a replacement; the next one uses the name again.
            if name.starts_with('.') {
                continue;
            }
            // Its members are leftovers, which the next start removes.
            if let Some(id) = name.strip_suffix(UNFINISHED).and_then(|name| name.parse().ok()) {
                damaged.push(id);
                continue;
            }
            let id = name.strip_suffix(SUFFIX).and_then(|name| name.parse::<R::Id>().ok());
            let Some(id) = id.filter(|id| *R::pool_of(id) == self.id) else {
                let problem = format!("it is not a record of a {} of this pool", R::KIND);
                self.found_astray("stray", path.display().to_string(), problem, path);
                continue;
            };
            match read_record::<R>(&id, &path) {
                Ok(record) => whole.push(record),
                Err(_) if !path.exists() => {}
                Err(RecordFailure::Unread(error)) => {
                    return Err(cannot(|| format!("inspect {} {id}", R::KIND))(error));
                }
                Err(RecordFailure::Damaged(reason)) => {
                    self.found(Finding::by_hand(
                        "record-damaged",
                        format!("{} {id}", R::KIND),
                        format!("{reason}, so it answers DATA_LOSS"),
                        format!("restore {} from a backup", path.display()),
                    ));
                    damaged.push(id);
                }
            }
        }
        Ok((whole, damaged))
    }

    fn inspect_group_snapshots(&mut self, groups: &[GroupSnapshotRecord]) {
        for group in groups {
            let names = group.members.iter().map(ToString::to_string);
            let missing: Vec<String> =
                names.filter(|name| !self.layout.snapshots().join(name).exists()).collect();
            if !missing.is_empty() {
                self.found(Finding::by_hand(
                    "member-missing",
                    format!("group snapshot {}", group.id),
                    format!("its members {} are gone", missing.join(", ")),
                    "the others can still be restored; delete the group when you have done so",
                ));
            }
        }
    }

    /// No note says that the group is unfinished, so its record was lost. A start sets them aside as
    /// well.
    fn inspect_members(
        &mut self,
        snapshots: &[SnapshotRecord],
        known: &BTreeSet<&GroupSnapshotId>,
    ) {
        if self.in_use {
            return;
        }
        for snapshot in snapshots {
            let Some(group) = snapshot.group.as_ref().filter(|group| !known.contains(group)) else {
                continue;
            };
            let directory = self.layout.snapshots().join(snapshot.id.to_string());
            self.found_astray(
                "group-missing",
                format!("snapshot {}", snapshot.id),
                format!(
                    "it is a member of {group}, which is not there; the next start quarantines it"
                ),
                directory,
            );
        }
    }

    fn inspect_volume_groups(&mut self, groups: Vec<VolumeGroupRecord>, directory: &Path) {
        for mut group in groups {
            let is_there = |id: &VolumeId| self.layout.volumes().join(id.to_string()).exists();
            let (kept, missing): (BTreeSet<_>, BTreeSet<_>) =
                group.members.iter().cloned().partition(is_there);
            if missing.is_empty() {
                continue;
            }
            let gone: Vec<String> = missing.iter().map(ToString::to_string).collect();
            let subject = format!("volume group {}", group.id);
            group.members = kept;
            let directory = directory.to_owned();
            self.found(Finding::repairable(
                "member-missing",
                subject,
                format!("its volumes {} are gone", gone.join(", ")),
                "take them out of the group",
                move || {
                    let text = to_text(&group)?;
                    let name = format!("{}{SUFFIX}", group.id);
                    file::replace_file(&directory, &name, &text)
                        .map_err(cannot(|| format!("save volume group {}", group.id)))
                },
            ));
        }
    }
}
