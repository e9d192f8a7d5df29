//! Volumes that are in use on this node and of which the record is lost: the run directory or the
//! driver's name was changed, or files in it were removed. The kernel says what is in use, and what
//! is in use is not taken away (decision 0031).

use orlop_model::{
    DeviceAccess, DeviceMount, Error, NodeRecord, Result, Stage, TargetPath, VolumeId,
};

use crate::engine::{Engine, PoolRef};

/// What a call that stages a volume finds on the node. Undoing the call leaves it there.
#[derive(Clone, Copy)]
pub(crate) enum FoundOnNode {
    Nothing,
    /// In use, and the record of it is lost.
    Unrecorded(UnrecordedUse),
    /// The same stage, with its record.
    Stage,
}

#[derive(Clone, Copy)]
pub(crate) struct UnrecordedUse {
    read_write_device: bool,
    read_only_device: bool,
    /// At the staging path.
    mount: bool,
}

impl UnrecordedUse {
    fn has_device(self, access: DeviceAccess) -> bool {
        match access {
            DeviceAccess::ReadWrite => self.read_write_device,
            DeviceAccess::ReadOnly => self.read_only_device,
        }
    }
}

impl Engine {
    /// The caller says that it is done with a volume of which no record is left; others may not be.
    pub(super) fn release_unrecorded(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        for access in [DeviceAccess::ReadOnly, DeviceAccess::ReadWrite] {
            if let Some(device) = pool.devices().attached(id, access)? {
                pool.devices().try_detach_unused(id, access)?;
                tracing::info!(
                    volume = %id,
                    device = %device.path.display(),
                    "detached a device that had no node record"
                );
            }
        }
        Ok(())
    }

    /// What is there before a stage of which nothing is recorded: the record was lost, and a workload
    /// may use it. Refused if it is used in another way than is wanted now.
    pub(super) fn found_without_record(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        node: &NodeRecord,
        wanted: &Stage,
    ) -> Result<FoundOnNode> {
        if !node.is_empty() {
            return Ok(FoundOnNode::Nothing);
        }
        let mut attached = Vec::new();
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            let Some(device) = pool.devices().attached(id, access)? else { continue };
            attached.push(access);
            for there in self.host.mounts_of(&device)? {
                if there.is_device_node != wanted.capability.is_block() {
                    return Err(Error::precondition(format!(
                        "cannot stage volume {id}: it is in use {} at {there}, of which no record is \
                         left; unpublish it there first",
                        if there.is_device_node { "as a raw device" } else { "as a filesystem" }
                    )));
                }
            }
        }
        if attached.is_empty() {
            return Ok(FoundOnNode::Nothing);
        }
        Ok(FoundOnNode::Unrecorded(UnrecordedUse {
            read_write_device: attached.contains(&DeviceAccess::ReadWrite),
            read_only_device: attached.contains(&DeviceAccess::ReadOnly),
            mount: self.is_mounted_from(pool, id, &wanted.path)?,
        }))
    }

    /// Takes back what the call that staged the volume did, not what it found.
    pub(crate) fn undo_stage(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        wanted: &Stage,
        found: FoundOnNode,
    ) -> Result<()> {
        let found = match found {
            FoundOnNode::Stage => return Ok(()),
            FoundOnNode::Nothing => return self.ensure_unstaged(pool, id, &wanted.path),
            FoundOnNode::Unrecorded(found) => found,
        };
        if !found.mount && self.is_mounted_from(pool, id, &wanted.path)? {
            self.host.ensure_unmounted(&wanted.path)?;
        }
        for access in [DeviceAccess::ReadOnly, DeviceAccess::ReadWrite] {
            if !found.has_device(access) {
                self.release_device(pool, id, access)?;
            }
        }
        self.host.save_node_record(id, &NodeRecord::default())
    }

    /// Wherever on this machine the volume's filesystem is mounted or its device bound, recorded or
    /// not, also where another mount hides it.
    pub(crate) fn mounted_at(&self, pool: &PoolRef, id: &VolumeId) -> Result<Vec<DeviceMount>> {
        let mut found = Vec::new();
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            if let Some(device) = pool.devices().attached(id, access)? {
                found.extend(self.host.mounts_of(&device)?);
            }
        }
        Ok(found)
    }

    /// A bound node keeps no device: after it was detached, the node would show the next volume that
    /// gets its number.
    pub(super) fn check_not_bound(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        match self.mounted_at(pool, id)?.into_iter().next() {
            None => Ok(()),
            Some(there) => Err(Error::precondition(format!(
                "cannot unstage volume {id}: it is still published at {there}; unpublish it first"
            ))),
        }
    }

    pub(crate) fn is_hidden_at(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<bool> {
        let mounts = self.mounted_at(pool, id)?;
        if mounts.iter().all(|there| !there.is_hidden) {
            return Ok(false);
        }
        let path = self.host.resolved(path);
        Ok(mounts.iter().any(|there| there.is_hidden && there.mount_point == path))
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
            true => Err(Error::precondition(format!(
                "volume {id} is still published at {path}, where another mount hides it; unmount what \
                 covers {path}, then unpublish the volume"
            ))),
        }
    }

    /// Without a record, publications are known by what is mounted.
    pub(super) fn check_mounted_only_at(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<()> {
        let is_elsewhere = |there: &DeviceMount| there.path().as_ref() != Some(path);
        match self.mounted_at(pool, id)?.into_iter().find(is_elsewhere) {
            None => Ok(()),
            Some(other) => Err(Error::precondition(format!(
                "cannot unstage volume {id}: it is still published at {other}; unpublish it first"
            ))),
        }
    }
}
