//! NodePublishVolume and NodeUnpublishVolume: a staged volume at the workload's path.

use orlop_model::{
    DeviceAccess, Error, NodeRecord, Publication, Result, Stage, TargetPath, VolumeId, VolumeKeys,
    VolumeRecord,
};

use crate::difference::{capability_differs, readonly_differs};
use crate::engine::{Engine, PoolRef, rolled_back};
use crate::mount_group::check_group;
use crate::node_stage::wants_read_only;
use crate::request::{PublishVolume, PublishWay, VolumeRef, check_context};
use crate::sharing::sharing;

/// What becomes of the file or directory that a volume was published at.
#[derive(Clone, Copy)]
pub(crate) enum TargetPathAfter {
    Removed,
    Kept,
}

impl Engine {
    pub fn publish_volume(&self, request: &PublishVolume) -> Result<()> {
        let staging = match &request.way {
            PublishWay::Inline { spec } => return self.publish_inline(request, spec),
            PublishWay::Staged { staging } => staging,
        };
        let VolumeRef::Issued(id) = &request.volume else {
            return Err(Error::NoSuchVolume(request.volume.to_string()));
        };
        let _locks = self.locks().volume_at(id.digest(), &request.target)?;
        let (pool, record) = self.require_subject(id)?;
        check_context(pool, &record, &request.context)?;
        self.check_use(&record, &request.capability)?;
        self.publish_staged(pool, &record, staging, request)
    }

    pub(crate) fn publish_staged(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        staging: &TargetPath,
        request: &PublishVolume,
    ) -> Result<()> {
        let stage = self.require_stage(pool, &record.id, staging)?;
        sharing(pool).check_reachable(&record.id)?;
        let node = self.host().node_record(&record.id)?;
        let made_before = node.publication(&request.target).is_some_and(|p| p.target_made);
        let wanted = Publication {
            target: request.target.clone(),
            capability: request.capability.clone(),
            read_only: request.read_only,
            target_made: made_before || !self.host().target_exists(&request.target)?,
        };
        let live = self.live_publications(pool, &record.id)?;
        if let Some(current) = live.iter().find(|current| current.target == wanted.target) {
            return check_same_publication(record, current, &wanted);
        }
        check_second_target(record, &live, &wanted)?;
        for other in node.publications.iter().filter(|other| !live.contains(other)) {
            if other.target == wanted.target || !wanted.capability.mode.allows_second_target() {
                self.check_not_hidden(pool, &record.id, &other.target)?;
            }
        }
        check_group(record, &live, &wanted)?;
        if stage.capability.is_block() != wanted.capability.is_block() {
            return Err(Error::precondition(format!(
                "cannot publish {}: it is staged for another access type; unstage it, then stage it \
                 as it is to be published",
                record.label()
            )));
        }
        let read_only = wanted.read_only
            || stage.read_only
            || request.publish.read_only
            || wanted.capability.mode.is_read_only()
            || wants_read_only(&wanted.capability.access);
        if stage.capability.is_block() {
            let access = if read_only { DeviceAccess::ReadOnly } else { DeviceAccess::ReadWrite };
            self.ensure_one_cache(pool, record, access)?;
        }
        self.ensure_published(pool, record, (stage, live), wanted, read_only, &request.keys)
    }

    /// Readers have another device than writers, as only a device can refuse writes, and each has a
    /// page cache: a reader would be shown what a block held before the writer changed it, for as
    /// long as it likes. So raw volumes are published to readers or to writers, not to both.
    fn ensure_one_cache(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        access: DeviceAccess,
    ) -> Result<()> {
        let id = &record.id;
        let (other, how) = match access {
            DeviceAccess::ReadOnly => (DeviceAccess::ReadWrite, "for writing"),
            DeviceAccess::ReadWrite => (DeviceAccess::ReadOnly, "read-only"),
        };
        let Some(device) = self.workload_device(pool, id, other)? else { return Ok(()) };
        // Not by the records, which can be lost while workloads go on.
        if let Some(target) = self.host().mounts_of(&device)?.into_iter().next() {
            return Err(Error::precondition(format!(
                "cannot publish {}: it is published {how} at {target}, and readers of a \
                 raw device would not see what is written beside them; unpublish it there first, \
                 publish all targets with the same readonly, or use a filesystem",
                record.label()
            )));
        }
        match other {
            DeviceAccess::ReadOnly => self.release_device(pool, id, DeviceAccess::ReadOnly),
            // What former writers left in its cache is what readers are to see.
            DeviceAccess::ReadWrite => self.host().sync_device(&device),
        }
    }

    /// Record first, then the effect; a failure takes both back (NP-37).
    fn ensure_published(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        (stage, live): (Stage, Vec<Publication>),
        wanted: Publication,
        read_only: bool,
        keys: &VolumeKeys,
    ) -> Result<()> {
        let before = NodeRecord { stage: Some(stage.clone()), publications: live };
        let mut after = before.clone();
        after.publications.push(wanted.clone());
        self.host().save_node_record(&record.id, &after)?;
        let done = if stage.capability.is_block() {
            self.publish_device(pool, record, &wanted.target, read_only, keys)
        } else {
            self.ensure_group_of(&stage, &wanted.capability).and_then(|()| {
                self.publish_directory(pool, record, &stage.path, &wanted.target, read_only)
            })
        };
        // If this fails, the record that stays names the target.
        rolled_back(done, "publish", &record.id, || {
            self.release_read_only_device(pool, &record.id, &before)?;
            self.host().save_node_record(&record.id, &before)
        })
    }

    /// Limits are set again before each bind: under cgroup v1 a workload's own group was made after
    /// the volume was staged.
    fn publish_directory(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        staging: &TargetPath,
        target: &TargetPath,
        read_only: bool,
    ) -> Result<()> {
        self.apply_limits(pool, &record.id, &record.limits)?;
        self.host().ensure_bound_directory(staging, target, read_only)
    }

    /// A read-only bind of a device node does not stop writes to the device, so read-only
    /// publications get a second device, which refuses them.
    fn publish_device(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        target: &TargetPath,
        read_only: bool,
        keys: &VolumeKeys,
    ) -> Result<()> {
        let access = if read_only { DeviceAccess::ReadOnly } else { DeviceAccess::ReadWrite };
        let device = self.ensure_attached(pool, &record.id, access)?;
        let device = self.ensure_opened(pool, record, access, device, keys)?;
        self.apply_limits(pool, &record.id, &record.limits)?;
        self.host().ensure_bound_device(&device, target)
    }

    /// Undoes one publication and leaves the others (NN-10).
    pub fn unpublish_volume(&self, volume: &VolumeRef, target: &TargetPath) -> Result<()> {
        self.unpublish(volume, target, TargetPathAfter::Removed)
    }

    /// As [`Engine::unpublish_volume`], for callers that made the path themselves (V0-28, V0-29).
    pub fn unpublish_volume_keeping_target(
        &self,
        volume: &VolumeRef,
        target: &TargetPath,
    ) -> Result<()> {
        self.unpublish(volume, target, TargetPathAfter::Kept)
    }

    fn unpublish(
        &self,
        volume: &VolumeRef,
        target: &TargetPath,
        after: TargetPathAfter,
    ) -> Result<()> {
        // Before the look-up: an inline volume may be just about to be made.
        let _locks = self.locks().volume_at(&volume.digest(), target)?;
        let id = match volume {
            VolumeRef::Issued(id) => Some(id.clone()),
            VolumeRef::Foreign(text) => self.find_inline_of_any_pool(text)?,
        };
        let Some(id) = id else { return self.check_vacant(volume, target) };
        let Some(pool) = self.pools().get(id.pool()) else {
            return self.unpublish_without_pool(volume, &id, target, after);
        };
        let _foreign_call = match volume {
            VolumeRef::Issued(_) => None,
            VolumeRef::Foreign(_) => self.admit_foreign_call(pool, None)?,
        };
        let mut node = self.host().node_record(&id)?;
        let recorded = node.publication(target).cloned();
        if recorded.is_none() && node.stage.as_ref().is_some_and(|stage| stage.path == *target) {
            // It is the volume that is there, but not as a publication: other targets live on it.
            return self.check_vacant(volume, target);
        }
        let ours = match &recorded {
            Some(publication) => self.is_reachable(pool, &id, publication)?,
            None => self.is_mounted_from(pool, &id, target)?,
        };
        match ours {
            true => {
                // If it hangs, so does the filesystem, and the unmount is refused as busy.
                self.staged_watch().wait_for(&id);
                self.unmount(&id, target)?;
            }
            false => self.check_not_hidden(pool, &id, target)?,
        }
        // Where another volume is published this one is not, which is all that was asked for.
        let is_of_another = !ours && self.is_of_another(&id, target)?;
        if !is_of_another || self.require_volume(&id).is_err() {
            self.check_vacant(volume, target)?;
            // A path at which nothing of ours ever was is not ours to remove.
            if recorded.is_some() || ours {
                self.clear_target(target, recorded.as_ref(), after)?;
            }
        }
        if recorded.is_some() {
            node.publications.retain(|publication| publication.target != *target);
            self.release_read_only_device(pool, &id, &node)?;
            self.host().save_node_record(&id, &node)?;
        }
        self.discard_inline(pool, &id, &node)
    }

    /// NN-03. What was there before the publication goes too if it is empty; a directory or a file with
    /// something in it is its owner's, and was only hidden. So it is if no record says which it was.
    pub(crate) fn clear_target(
        &self,
        target: &TargetPath,
        recorded: Option<&Publication>,
        after: TargetPathAfter,
    ) -> Result<()> {
        match after {
            TargetPathAfter::Kept => return self.host().ensure_unmounted_elsewhere(target),
            TargetPathAfter::Removed => {}
        }
        match self.host().ensure_target_removed(target) {
            Err(Error::Precondition(_)) if recorded.is_none_or(|it| !it.target_made) => Ok(()),
            removed => removed,
        }
    }

    /// The extra read-only device is detached with the last publication that could need it.
    fn release_read_only_device(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        node: &NodeRecord,
    ) -> Result<()> {
        let staged_read_only = node.stage.as_ref().is_some_and(|stage| stage.read_only);
        if staged_read_only || !node.publications.is_empty() {
            return Ok(());
        }
        // A publication of which the record was lost: its node would show another volume next.
        let device = self.workload_device(pool, id, DeviceAccess::ReadOnly)?;
        if let Some(device) = device
            && !self.host().mounts_of(&device)?.is_empty()
        {
            return Ok(());
        }
        self.release_device(pool, id, DeviceAccess::ReadOnly)
    }

    fn require_stage(&self, pool: &PoolRef, id: &VolumeId, path: &TargetPath) -> Result<Stage> {
        // NP-38: an empty directory must never be published in the volume's place.
        match self.live_stage(pool, id)? {
            Some(stage) if stage.path == *path => Ok(stage),
            Some(stage) => Err(Error::precondition(format!(
                "cannot publish volume {id}: it is staged at {}, not at {path}; publish it from \
                 there",
                stage.path
            ))),
            None => Err(Error::precondition(format!(
                "cannot publish volume {id}: it is not staged at {path}; call NodeStageVolume first"
            ))),
        }
    }

    /// The publications on record that the kernel agrees with.
    pub(crate) fn live_publications(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
    ) -> Result<Vec<Publication>> {
        self.publications_that(id, |publication| {
            self.is_mounted_from(pool, id, &publication.target)
        })
    }

    /// The publications on record of which a mount is still there to be unmounted.
    pub(crate) fn present_publications(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
    ) -> Result<Vec<Publication>> {
        self.publications_that(id, |publication| self.is_present(pool, id, publication))
    }

    fn publications_that(
        &self,
        id: &VolumeId,
        holds: impl Fn(&Publication) -> Result<bool>,
    ) -> Result<Vec<Publication>> {
        let mut found = Vec::new();
        for publication in self.host().node_record(id)?.publications {
            if holds(&publication)? {
                found.push(publication);
            }
        }
        Ok(found)
    }

    fn is_present(&self, pool: &PoolRef, id: &VolumeId, publication: &Publication) -> Result<bool> {
        Ok(self.is_reachable(pool, id, publication)?
            || self.is_hidden_at(pool, id, &publication.target)?)
    }

    /// A device node at a target that we recorded was put there by us, even if its device is gone
    /// and its number says nothing any more; unless another volume was published there since.
    fn is_reachable(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        publication: &Publication,
    ) -> Result<bool> {
        if self.is_mounted_from(pool, id, &publication.target)? {
            return Ok(true);
        }
        let mounted = self.host().mount_at(&publication.target)?;
        let is_node =
            publication.capability.is_block() && mounted.is_some_and(|at| at.is_device_node);
        Ok(is_node && !self.is_of_another(id, &publication.target)?)
    }

    /// Is another volume published at the path, by its record and by what is mounted there? If its pool is not in
    /// service, the record alone decides.
    pub(crate) fn is_of_another(&self, id: &VolumeId, target: &TargetPath) -> Result<bool> {
        if self.host().mount_at(target)?.is_none() {
            return Ok(false);
        }
        for other in self.host().node_records()?.iter().filter(|other| *other != id) {
            let names_it = match self.host().node_record(other) {
                Ok(node) => node.publication(target).is_some(),
                Err(Error::Damaged { .. }) => false,
                Err(error) => return Err(error),
            };
            let is_there = |pool: &PoolRef| self.is_mounted_from(pool, other, target);
            if names_it && self.pools().get(other.pool()).map_or(Ok(true), is_there)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// NP-03, NP-16. Secrets are not part of it (NP-34): they are not kept.
fn check_same_publication(
    record: &VolumeRecord,
    current: &Publication,
    wanted: &Publication,
) -> Result<()> {
    if current.read_only == wanted.read_only && current.capability == wanted.capability {
        return Ok(());
    }
    let reason = match current.read_only == wanted.read_only {
        true => capability_differs(&current.capability, &wanted.capability),
        false => readonly_differs(current.read_only),
    };
    let what = format!("the publication of {} at {}", record.label(), current.target);
    Err(Error::conflict(what, reason))
}

/// NP-22 to NP-33, and point 1 of docs/specification.md: another target needs a mode that allows it and the same
/// way of using the volume.
fn check_second_target(
    record: &VolumeRecord,
    live: &[Publication],
    wanted: &Publication,
) -> Result<()> {
    let Some(other) = live.first() else {
        return Ok(());
    };
    if !wanted.capability.mode.allows_second_target() {
        return Err(Error::precondition(format!(
            "cannot publish {}: it is published at {}, and its access mode allows one path only; \
             unpublish it there first",
            record.label(),
            other.target
        )));
    }
    if !other.capability.same_use(&wanted.capability) {
        return Err(Error::precondition(format!(
            "cannot publish {}: it is published at {} with another volume_capability; unpublish it \
             there first",
            record.label(),
            other.target
        )));
    }
    Ok(())
}
