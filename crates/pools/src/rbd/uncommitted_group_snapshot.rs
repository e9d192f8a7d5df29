//! Snapshots of several images at one instant that no record names yet.
//!
//! RBD takes an atomic snapshot of the images of one group, and an image is in one group at most. So
//! there is a group for each group snapshot, the images are in it only while it is taken, and the
//! snapshots stay with the group: it goes when they go, and they with it.
//!
//! The order is: a lock on each image, the intent, the group, the images into it, the snapshot, the
//! images out of it, the locks, the record. If we hold the lock of an image and the image is still
//! in a group, that group is an orphan: its daemon has released the lock, or was blocklisted, before
//! we could acquire it. It is removed.

use std::sync::Arc;

use orlop_model::{Error, GroupSnapshotId, Result, VolumeId};
use orlop_sys::ceph::{Access, ImageSnapshot, IoCtx, Update, UpdateOutcome};
use serde::{Deserialize, Serialize};

use super::catalogue::GroupSnapshotEntry;
use super::garbage::finish_removals;
use super::image_lock::{ImageLock, open_to_remove};
use super::images::Images;
use super::intent::{Intended, Intent, Intents, Removal};
use super::layout::{GROUP_INTENT, image_of, name_of_snapshot_group, purpose_of, snapshot_group};
use super::records::Records;
use super::session::{Session, cannot};

const LOCK: &str = "orlop.group";
/// A group has one snapshot.
const SNAPSHOT: &str = "cut";

/// A group with snapshots of these images, and perhaps with the images themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IntendedGroupSnapshot {
    images: Vec<String>,
}

impl IntendedGroupSnapshot {
    /// By id, in the order of the members.
    pub(super) fn images(&self) -> &[String] {
        &self.images
    }
}

impl Intended for IntendedGroupSnapshot {
    const PREFIX: &'static str = GROUP_INTENT;

    fn is_recorded(&self, records: &Records, name: &str) -> Result<bool> {
        let Some(id) = purpose_of(name).and_then(|purpose| purpose.parse().ok()) else {
            return Ok(false);
        };
        let reading = || format!("read group snapshot {id}");
        let text = records.get(reading, &GroupSnapshotId::to_string(&id))?;
        let Some(text) = text else { return Ok(false) };
        let entry = GroupSnapshotEntry::parse(&id, &text)?;
        Ok(entry.location.rbd_group == snapshot_group(name))
    }

    /// Snapshots first, then the images, then the group: librbd takes it from where it was left.
    /// Clones of the snapshots keep them alive out of sight.
    fn ensure_removed(&self, session: &Session, name: &str) -> Result<Removal> {
        let removing = || format!("remove the group snapshot {name}");
        for image_id in &self.images {
            session.ask(removing, |io| match open_to_remove(io, image_id) {
                Err(error) if error.is_not_found() => Ok(()),
                image => image.map(drop),
            })?;
        }
        let found = session.ask(removing, |io| io.ensure_no_group(&snapshot_group(name)))?;
        // Their group no longer leads to snapshots that another process removed halfway.
        for image_id in &self.images {
            session.ask(removing, |io| finish_removals(io, image_id))?;
        }
        Ok(if found { Removal::ForGood } else { Removal::NotFound })
    }
}

/// A volume to take a snapshot of, and the id of its image when the call began.
#[derive(Debug)]
pub(super) struct GroupMember {
    pub(super) volume: VolumeId,
    pub(super) image_id: String,
}

/// Dropped, it removes the snapshots again, unless they were committed.
#[derive(Debug)]
pub(super) struct UncommittedGroupSnapshot {
    /// Before the locks, as they are released last.
    intent: Intent<IntendedGroupSnapshot>,
    members: Vec<GroupMember>,
    locks: Vec<ImageLock>,
    /// The connection that has the locks. If its client is blocklisted, the pool connects as another client, which
    /// has none of them.
    io: Arc<IoCtx>,
}

impl UncommittedGroupSnapshot {
    /// All that can be done before writers have to wait.
    pub(super) fn prepare(
        session: &Session,
        images: &Images,
        intents: &Arc<Intents>,
        purpose: &str,
        members: Vec<GroupMember>,
    ) -> Result<Self> {
        let mut locks = Vec::new();
        // All take them in the order of ids, so that there is no deadlock.
        for member in &members {
            locks.push(lock_out_of_group(session, intents, member)?);
        }
        let Some(io) = locks.first().map(|lock| Arc::clone(lock.io())) else {
            return Err(Error::invalid("source_volume_ids", "is empty"));
        };
        let intended = IntendedGroupSnapshot {
            images: members.iter().map(|one| one.image_id.clone()).collect(),
        };
        let intent = intents.begin(purpose, intended)?;
        let prepared = Self { intent, members, locks, io };
        prepared.gather(images)?;
        Ok(prepared)
    }

    fn gather(&self, images: &Images) -> Result<()> {
        let gathering = || format!("add the images to the group of {}", self.intent.name());
        let group = self.group();
        self.io.create_group(&group).map_err(cannot(gathering))?;
        for GroupMember { volume, .. } in &self.members {
            let added = self.io.try_add_to_group(&group, &image_of(volume));
            if !added.map_err(cannot(gathering))? {
                return Err(Error::busy(
                    format!("volume {volume}"),
                    "another group snapshot has it in its group",
                ));
            }
        }
        // Not before: librbd frees no image that is in a group, so of what is a volume now there is
        // an image until the group is gone. And it was added by its name, which may have been
        // another image's.
        for GroupMember { volume, image_id } in &self.members {
            if images.require(volume)?.image_id != *image_id {
                return Err(Error::busy(
                    format!("volume {volume}"),
                    "it was deleted and created again during this call",
                ));
            }
        }
        Ok(())
    }

    /// What RBD calls the group.
    pub(super) fn group(&self) -> String {
        snapshot_group(self.intent.name())
    }

    pub(super) fn intended(&self) -> &IntendedGroupSnapshot {
        self.intent.what()
    }

    pub(super) fn take(&self) -> Result<()> {
        let taking = || format!("take the group snapshot {}", self.intent.name());
        self.io.snapshot_group(&self.group(), SNAPSHOT).map_err(cannot(taking))
    }

    /// The snapshots, in the order of the members, whose locks are released.
    pub(super) fn release(&mut self) -> Result<Vec<ImageSnapshot>> {
        let (io, group) = (&self.io, self.group());
        let mut made = Vec::new();
        for GroupMember { volume, image_id } in &self.members {
            let looking = || format!("find the snapshot of volume {volume}");
            // Opened for this: one that was open before may not know of it yet.
            let image =
                io.open_image_by_id(image_id, None, Access::ReadOnly).map_err(cannot(looking))?;
            let found = image.snapshot_in_group(&group).map_err(cannot(looking))?;
            // Nothing is committed yet, so a repeated call begins afresh.
            made.push(found.ok_or_else(|| {
                Error::busy(
                    format!("volume {volume}"),
                    "another process has removed the snapshot of its group",
                )
            })?);
        }
        for GroupMember { volume, image_id } in &self.members {
            let releasing = || format!("remove volume {volume} from its snapshot's group");
            io.remove_from_group(&group, image_id).map_err(cannot(releasing))?;
        }
        self.locks.clear();
        Ok(made)
    }

    pub(super) fn try_commit(self, update: Update) -> Result<bool> {
        self.intent.try_commit(update)
    }
}

fn lock_out_of_group(
    session: &Session,
    intents: &Intents,
    member: &GroupMember,
) -> Result<ImageLock> {
    let GroupMember { volume, image_id } = member;
    let what = format!("the group of volume {volume}");
    let lock = ImageLock::acquire(session, image_id, LOCK, &what)?;
    let looking = || format!("inspect the group of volume {volume}");
    let Some(group) = lock.image().group().map_err(cannot(looking))? else { return Ok(lock) };
    let Some(name) = name_of_snapshot_group(&group) else {
        return Err(Error::precondition(format!(
            "cannot take a group snapshot of volume {volume}: it is in the RBD group {group}, which is not Orlop's, and an image \
             is in one group at most; take it out of that group (rbd group image remove)"
        )));
    };
    match intents.ensure_removed::<IntendedGroupSnapshot>(name)? {
        UpdateOutcome::Done => {
            tracing::warn!(group, "removed an orphaned group of a daemon that was killed")
        }
        // A group without an intent has a record, and stays.
        UpdateOutcome::Differs => {
            session.ask(looking, |io| io.remove_from_group(&group, image_id))?;
        }
    }
    Ok(lock)
}
