//! Snapshots of several images at one instant that nobody answers for yet.
//!
//! RBD cuts images together that are in one group, and an image is in one group at most. So there is
//! a group for each cut, the images are in it for the cut alone, and the snapshots stay with it: it
//! goes when they go, and they with it.
//!
//! The order is: a lock on each image, the note, the group, the images into it, the cut, the images
//! out of it, the locks, the record. Whoever has the lock of an image and finds it in a group all
//! the same has found what a process left that was killed, and takes it away: that one was
//! blocklisted, or has let go of the lock, before anybody else could have it.

use std::sync::Arc;

use orlop_model::{Error, Result, VolumeId};
use orlop_sys::ceph::{Access, ImageSnapshot, IoCtx, Outcome, Update};
use serde::{Deserialize, Serialize};

use super::failure::Doing;
use super::fence::open_to_change;
use super::image_lock::ImageLock;
use super::layout::{PENDING_GROUP, cut_group, image_of, name_of_cut_group};
use super::pending::{Gone, Leftover, Pending};
use super::removals::finish_removals;
use super::store::Store;

const LOCK: &str = "orlop.group";
/// A group has one snapshot.
const SNAPSHOT: &str = "cut";

/// A group with snapshots of these images, and perhaps with the images themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfImages {
    pub(super) images: Vec<String>,
}

impl Leftover for OfImages {
    const PREFIX: &'static str = PENDING_GROUP;

    /// Snapshots first, then the images, then the group: librbd takes it from where it was left.
    /// Clones of the snapshots keep them alive out of sight.
    fn ensure_gone(&self, store: &Store, name: &str) -> Result<Gone> {
        let removing = || format!("remove the group snapshot {name}");
        for image_id in &self.images {
            store.ask(removing, |io| match open_to_change(io, image_id) {
                Err(error) if error.is_not_found() => Ok(()),
                image => image.map(drop),
            })?;
        }
        let found = store.ask(removing, |io| io.ensure_no_group(&cut_group(name)))?;
        // Their group no longer leads to snapshots that another process removed halfway.
        for image_id in &self.images {
            store.ask(removing, |io| finish_removals(io, image_id))?;
        }
        Ok(if found { Gone::ForGood } else { Gone::NotFound })
    }
}

/// A volume that is to be cut, and the image that is meant by it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) volume: VolumeId,
    pub(super) image_id: String,
}

/// Dropped, it takes the snapshots away again, unless they were made lasting.
#[derive(Debug)]
pub(super) struct GroupCut {
    /// Before the locks, as they are let go of last.
    pending: Pending<OfImages>,
    members: Vec<Member>,
    locks: Vec<ImageLock>,
    /// That has the locks. Another client, as which the pool connects anew when this one was
    /// blocklisted, has none.
    io: Arc<IoCtx>,
}

impl GroupCut {
    /// All that can be done before writers have to wait.
    pub(super) fn prepare(store: &Arc<Store>, purpose: &str, members: Vec<Member>) -> Result<Self> {
        let mut locks = Vec::new();
        // All take them in the order of ids, so nobody waits for one who waits for him.
        for member in &members {
            locks.push(store.lock_out_of_group(member)?);
        }
        let Some(io) = locks.first().map(|lock| Arc::clone(lock.io())) else {
            return Err(Error::invalid("source_volume_ids", "is empty"));
        };
        let images = members.iter().map(|member| member.image_id.clone()).collect();
        let pending = Pending::note(store, purpose, OfImages { images })?;
        let cut = Self { pending, members, locks, io };
        cut.gather()?;
        Ok(cut)
    }

    fn gather(&self) -> Result<()> {
        let gathering = || format!("gather the images of {}", self.pending.name);
        let group = self.group();
        self.io.create_group(&group).doing(gathering)?;
        for Member { volume, .. } in &self.members {
            let added = self.io.try_add_to_group(&group, &image_of(volume));
            if !added.doing(gathering)? {
                return Err(Error::Busy(format!("the group of volume {volume}")));
            }
        }
        // Not before: librbd frees no image that is in a group, so of what is a volume now there is
        // an image until the group is gone. And it was added by its name, which may have been
        // another's.
        for Member { volume, image_id } in &self.members {
            if self.pending.store.require(volume)?.image_id != *image_id {
                return Err(Error::Busy(format!("volume {volume}")));
            }
        }
        Ok(())
    }

    /// What RBD calls the group.
    pub(super) fn group(&self) -> String {
        cut_group(&self.pending.name)
    }

    pub(super) fn images(&self) -> OfImages {
        self.pending.what.clone()
    }

    pub(super) fn cut(&self) -> Result<()> {
        let cutting = || format!("cut {}", self.pending.name);
        self.io.snapshot_group(&self.group(), SNAPSHOT).doing(cutting)
    }

    /// The snapshots, in the order of the members, which may be cut by others from now on.
    pub(super) fn release(&mut self) -> Result<Vec<ImageSnapshot>> {
        let (io, group) = (&self.io, self.group());
        let mut made = Vec::new();
        for Member { volume, image_id } in &self.members {
            let looking = || format!("look at the snapshot of volume {volume}");
            // Opened for this: one that was open before may not know of it yet.
            let image = io.open_image_by_id(image_id, None, Access::ReadOnly).doing(looking)?;
            let found = image.snapshot_in_group(&group).doing(looking)?;
            made.push(found.ok_or_else(|| Error::failed(looking(), "there is none"))?);
        }
        for Member { volume, image_id } in &self.members {
            let releasing = || format!("release volume {volume}");
            io.remove_from_group(&group, image_id).doing(releasing)?;
        }
        self.locks.clear();
        Ok(made)
    }

    pub(super) fn try_commit(self, update: Update) -> Result<bool> {
        self.pending.try_commit(update)
    }
}

impl Store {
    fn lock_out_of_group(&self, member: &Member) -> Result<ImageLock> {
        let Member { volume, image_id } = member;
        let lock = self.lock_image(image_id, LOCK, &format!("the group of volume {volume}"))?;
        let looking = || format!("look at the group of volume {volume}");
        let Some(group) = lock.image().group().doing(looking)? else { return Ok(lock) };
        let Some(name) = name_of_cut_group(&group) else {
            return Err(Error::precondition(format!(
                "volume {volume} is in the RBD group {group}, which is not Orlop's, and an image \
                 is in one group at most; take it out of that (rbd group image remove)"
            )));
        };
        match self.ensure_swept::<OfImages>(name)? {
            Outcome::Done => {
                tracing::warn!(group, "removed an orphaned group of a daemon that was killed")
            }
            // What has no note has a record, and stays.
            Outcome::Differs => {
                self.ask(looking, |io| io.remove_from_group(&group, image_id))?;
            }
        }
        Ok(lock)
    }
}
