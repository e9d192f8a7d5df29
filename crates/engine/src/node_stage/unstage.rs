//! NodeUnstageVolume: what staging did, undone in reverse.

use std::fmt::Display;

use orlop_model::{
    DeviceAccess, DeviceMount, Error, IoLimits, Publication, Reason, Result, Stage, TargetPath,
    VolumeId,
};

use crate::engine::{Engine, PoolRef, rolled_back};
use crate::request::VolumeRef;
use crate::sharing::sharing;

impl Engine {
    /// Undoes everything that staging did (NU-02). A path at which nothing is staged is fine,
    /// also for a volume that is gone: clean-up must be able to finish (point 3 of docs/specification.md).
    pub fn unstage_volume(&self, volume: &VolumeRef, path: &TargetPath) -> Result<()> {
        let VolumeRef::Issued(id) = volume else {
            return self.check_vacant(volume, path);
        };
        self.try_unstage_volume(volume, id, path)?;
        if !self.staged_watch().problems(id).is_empty()
            && self.host().node_record(id).is_ok_and(|node| node.stage.is_none())
        {
            self.staged_watch().forget(id);
        }
        // The caller wants it here no more.
        self.stage_failures().clear(id);
        Ok(())
    }

    fn try_unstage_volume(
        &self,
        volume: &VolumeRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<()> {
        let _locks = self.locks().volume_at(id.digest(), path)?;
        let Some(pool) = self.pools().get(id.pool()) else {
            return self.unstage_without_pool(id, path);
        };
        let node = self.host().node_record(id)?;
        match node.stage {
            Some(stage) if stage.path == *path => {
                self.check_unpublished(pool, id)?;
                sharing(pool).check_answers(id)?;
                self.ensure_unstaged(pool, id, path)
            }
            // The same place by another path, or a stage of which the record was lost.
            Some(stage) if self.is_mounted_from(pool, id, path)? => {
                self.check_unpublished(pool, id)?;
                sharing(pool).check_answers(id)?;
                pool.devices().check_detachable(id)?;
                self.check_written_back(id)?;
                self.unmount(id, path)?;
                self.host().ensure_unmounted_elsewhere(path)?;
                match self.live_stage(pool, id)? {
                    Some(_) => Ok(()),
                    None => self.ensure_unstaged(pool, id, &stage.path),
                }
            }
            Some(_) => Ok(()),
            // The record is lost, but the kernel knows whose this is.
            None if self.is_mounted_from(pool, id, path)? => {
                self.check_mounted_only_at(pool, id, path)?;
                sharing(pool).check_answers(id)?;
                self.ensure_unstaged(pool, id, path)
            }
            None => {
                self.check_vacant(volume, path)?;
                self.release_unrecorded(pool, id)
            }
        }
    }

    /// The caller says that it is done with a volume of which no record is left; others may not be.
    fn release_unrecorded(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        for access in [DeviceAccess::ReadOnly, DeviceAccess::ReadWrite] {
            if let Some(device) = pool.devices().attached(id, access)? {
                self.try_detach_unused(pool, id, access)?;
                tracing::info!(
                    volume = %id,
                    device = %device.path.display(),
                    "detached a device that had no node record"
                );
            }
        }
        Ok(())
    }

    /// The machine knows paths, but not of which volume.
    pub(crate) fn unmount(&self, id: &VolumeId, path: &TargetPath) -> Result<()> {
        match self.host().ensure_unmounted(path) {
            Err(Error::Precondition(reason)) => {
                let text = format!("cannot unmount volume {id}: {reason}");
                Err(Error::precondition(Reason::explained(text, reason)))
            }
            outcome => outcome,
        }
    }

    pub(crate) fn ensure_unstaged(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<()> {
        let mut node = self.host().node_record(id)?;
        pool.devices().check_detachable(id)?;
        let is_mounted = self.is_mounted_from(pool, id, path)?;
        if is_mounted {
            sharing(pool).check_can_be_unmounted(id, node.stage.as_ref())?;
        }
        self.check_written_back(id)?;
        if is_mounted {
            self.unmount(id, path)?;
        }
        // Also when it was unmounted before: a crash may have come between the two.
        if node.stage.as_ref().is_none_or(|stage| !stage.capability.is_block()) {
            self.host().ensure_unmounted_elsewhere(path)?;
        }
        if node.stage.as_ref().is_some_and(|stage| stage.read_only) {
            self.clear_aside(pool, id)?;
        }
        self.release_devices(pool, id, node.stage.as_ref())?;
        sharing(pool).leave_readers(self, id)?;
        node.stage = None;
        node.publications = self.present_publications(pool, id)?;
        self.host().save_node_record(id, &node)
    }

    /// What a crash in [`Engine::grow_aside`] may have left.
    fn clear_aside(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        let aside = self.host().private_stage(id)?;
        if self.is_mounted_from(pool, id, &aside)? {
            self.host().ensure_unmounted(&aside)?;
        }
        self.host().ensure_target_removed(&aside)
    }

    /// Limits stick to a device's number, and the number goes to another volume next. So they are
    /// lifted while the device is still ours, and come back if it has to stay.
    fn release_devices(&self, pool: &PoolRef, id: &VolumeId, stage: Option<&Stage>) -> Result<()> {
        // A filesystem keeps its device by itself, and what is staged as one was not bound before:
        // calls on it need not read the list of all mounts.
        if stage.is_none_or(|stage| stage.capability.is_block()) {
            self.check_not_bound(pool, id)?;
        }
        self.apply_limits(pool, id, &IoLimits::default())?;
        let detached = self
            .ensure_detached(pool, id, DeviceAccess::ReadOnly)
            .and_then(|()| self.ensure_detached(pool, id, DeviceAccess::ReadWrite));
        rolled_back(detached, "detachment", id, || match pool.catalogue().volume(id)? {
            Some(record) => self.apply_limits(pool, id, &record.limits),
            None => Ok(()),
        })
    }

    /// As [`Engine::release_devices`], of one that this call or an earlier one added.
    pub(crate) fn release_device(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        access: DeviceAccess,
    ) -> Result<()> {
        if let Some(device) = self.workload_device(pool, id, access)? {
            if let Some(there) = self.host().mounts_of(&device)?.first() {
                return Err(Error::precondition(format!(
                    "cannot detach {} of volume {id}: it is in use at {there}; unpublish it there \
                     first",
                    device.path.display()
                )));
            }
            self.host().ensure_limits(&device, &IoLimits::default())?;
        }
        self.ensure_detached(pool, id, access)
    }

    /// For a volume of which nothing is recorded here: fine, unless something is at the path.
    pub(crate) fn check_vacant(&self, volume: &VolumeRef, path: &TargetPath) -> Result<()> {
        if self.host().mount_at(path)?.is_none() {
            return Ok(());
        }
        let exists = match volume {
            VolumeRef::Issued(id) => match self.require_volume(id) {
                Err(unknown @ (Error::Unreachable { .. } | Error::NotServed { .. })) => {
                    return Err(unknown);
                }
                found => found.is_ok(),
            },
            VolumeRef::Foreign(_) => false,
        };
        if !exists {
            return Err(Error::NoSuchVolume(volume.to_string()));
        }
        Err(Error::precondition(format!(
            "cannot clear {path}: what is mounted there is not volume {volume}; unmount it by hand"
        )))
    }

    fn check_unpublished(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        let publications = self.present_publications(pool, id)?;
        let Some(Publication { target, .. }) = publications.first() else { return Ok(()) };
        self.check_not_hidden(pool, id, target)?;
        Err(still_published_at(id, target))
    }

    /// Wherever on this machine the volume's filesystem is mounted or its device bound, recorded or
    /// not, also where another mount hides it.
    pub(crate) fn mounted_at(&self, pool: &PoolRef, id: &VolumeId) -> Result<Vec<DeviceMount>> {
        let mut found = Vec::new();
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            if let Some(device) = self.workload_device(pool, id, access)? {
                found.extend(self.host().mounts_of(&device)?);
            }
        }
        Ok(found)
    }

    /// A bound node keeps no device: after it was detached, the node would show the next volume that
    /// gets its number.
    fn check_not_bound(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        match self.mounted_at(pool, id)?.into_iter().next() {
            None => Ok(()),
            Some(there) => Err(still_published_at(id, there)),
        }
    }

    pub(crate) fn is_hidden_at(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<bool> {
        Ok(self.is_hidden_among(&self.mounted_at(pool, id)?, path))
    }

    pub(crate) fn is_hidden_among(&self, mounts: &[DeviceMount], path: &TargetPath) -> bool {
        if mounts.iter().all(|there| !there.is_hidden) {
            return false;
        }
        let path = self.host().resolved(path);
        mounts.iter().any(|there| there.is_hidden && there.mount_point == path)
    }

    /// What another mount hides is still there, and shows again when that is unmounted.
    pub(crate) fn check_not_hidden(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<()> {
        match self.is_hidden_at(pool, id, path)? {
            false => Ok(()),
            true => Err(hidden_at(id, path)),
        }
    }

    /// Without a record, publications are known by what is mounted.
    fn check_mounted_only_at(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<()> {
        let is_elsewhere = |there: &DeviceMount| there.path().as_ref() != Some(path);
        match self.mounted_at(pool, id)?.into_iter().find(is_elsewhere) {
            None => Ok(()),
            Some(other) => Err(still_published_at(id, other)),
        }
    }
}

pub(crate) fn hidden_at(id: &VolumeId, path: &TargetPath) -> Error {
    Error::precondition(format!(
        "volume {id} is still published at {path}, where another mount hides it; unmount what \
         covers {path}, then unpublish the volume"
    ))
}

pub(crate) fn still_published_at(id: &VolumeId, place: impl Display) -> Error {
    Error::precondition(format!(
        "cannot unstage volume {id}: it is still published at {place}; unpublish it first"
    ))
}
