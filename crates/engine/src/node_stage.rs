//! NodeStageVolume: from a volume on a pool to a device on this machine and, for mounts, to a filesystem at
//! the staging path.
//!
//! Order of effects: record, device, filesystem, mount. Undone in reverse (`unstage.rs`). So whatever
//! exists has a record, and a call that is repeated after a crash finds out what is missing.
//!
//! A record may be lost all the same: the run directory or the driver's name was changed, or files in it
//! were removed. The kernel then says what is in use, and what is in use is neither unmounted nor detached
//! (decision 0031).

use orlop_model::{
    AccessType, Device, DeviceAccess, Error, FsType, IoLimits, MountAccess, MountRequest,
    NodeRecord, Publication, Result, Stage, TargetPath, VolumeCapability, VolumeId, VolumeKeys,
    VolumeRecord,
};

use crate::difference::{capability_differs, readonly_differs};
use crate::engine::{Engine, PoolRef, rolled_back};
use crate::mount_group::is_published_for;
use crate::request::{StageVolume, check_context};
use crate::sharing::sharing;
use filesystem::with_mount_shortage;

mod filesystem;
mod readers;
pub(crate) mod unstage;

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
    pub fn stage_volume(&self, request: &StageVolume) -> Result<()> {
        let outcome = self.try_stage_volume(request);
        match &outcome {
            Ok(()) => self.stage_failures().clear(&request.volume),
            Err(error) => self.stage_failures().note(&request.volume, error),
        }
        outcome
    }

    fn try_stage_volume(&self, request: &StageVolume) -> Result<()> {
        let _locks = self.locks().volume_at(request.volume.digest(), &request.path)?;
        let (pool, record) = self.require_subject(&request.volume)?;
        check_context(pool, &record, &request.context)?;
        self.check_keys_fit(pool, &record, &request.keys)?;
        self.check_use(&record, &request.capability)?;
        self.host().check_stage_path(&request.path)?;
        let wanted = Stage {
            path: request.path.clone(),
            read_only: request.publish.read_only
                || wants_read_only(&request.capability.access)
                || request.capability.mode.is_read_only(),
            capability: request.capability.clone(),
            encrypted: record.is_encrypted(),
        };
        self.ensure_staged(pool, &record, wanted, &request.keys).map(drop)
    }

    /// NS-13, NP-17: is the volume made for this, and does this machine offer it?
    pub(crate) fn check_use(&self, record: &VolumeRecord, wanted: &VolumeCapability) -> Result<()> {
        record.capabilities.check_grants(wanted).map_err(Error::precondition)?;
        match record.capabilities.fs() {
            Some(fs) if !wanted.is_block() && !self.host().filesystems().contains(&fs) => {
                Err(Error::precondition(format!(
                    "cannot use {} here: this node does not offer {fs}; install its tools, or add \
                     it to ORLOP_FILESYSTEMS",
                    record.label()
                )))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A caller that fails later undoes no more than was done here, by [`Engine::undo_stage`].
    pub(crate) fn ensure_staged(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        wanted: Stage,
        keys: &VolumeKeys,
    ) -> Result<FoundOnNode> {
        let current = self.live_stage(pool, &record.id)?;
        // First: a stage for another use is there already, whatever the volume is published for.
        if let Some(current) = &current {
            let live = self.live_publications(pool, &record.id)?;
            check_same_stage(record, current, &wanted, &live)?;
        }
        if current.is_some() {
            sharing(pool).check_staged(self, record, &wanted)?;
            self.check_stage_key(pool, record, &wanted, keys)?;
            self.complete_stage(pool, record, &wanted, keys)?;
            return Ok(FoundOnNode::Stage);
        }
        sharing(pool).check_stage(self, record, &wanted)?;
        let mut node = self.host().node_record(&record.id)?;
        let found = self.found_without_record(pool, &record.id, &node, &wanted)?;
        node.stage = Some(wanted.clone());
        self.host().save_node_record(&record.id, &node)?;
        let done = self.stage_effects(pool, record, &wanted, keys);
        let undo = || self.undo_stage(pool, &record.id, &wanted, found);
        rolled_back(done.map(|()| found), "stage", &record.id, undo)
    }

    /// Devices and mounts of a volume that has no node record: the record was lost, and a workload may use them.
    /// Refused if they are used in another way than is wanted now.
    fn found_without_record(
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
            let Some(device) = self.workload_device(pool, id, access)? else { continue };
            attached.push(access);
            for there in self.host().mounts_of(&device)? {
                if there.is_device_node != wanted.capability.is_block() {
                    return Err(Error::precondition(format!(
                        "cannot stage volume {id}: it is in use {} at {there}, without a node \
                         record; unpublish it there first",
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

    /// Undoes what the call that staged the volume did, and leaves what it found.
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
            self.host().ensure_unmounted(&wanted.path)?;
        }
        for access in [DeviceAccess::ReadOnly, DeviceAccess::ReadWrite] {
            if !found.has_device(access) {
                self.release_device(pool, id, access)?;
            }
        }
        self.host().save_node_record(id, &NodeRecord::default())
    }

    /// The steps after the mount, for a volume that is mounted already: the daemon may have been killed between the
    /// mount and these steps.
    fn complete_stage(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        wanted: &Stage,
        keys: &VolumeKeys,
    ) -> Result<()> {
        if wanted.capability.is_block() {
            // After a refused unstage the kernel would detach it when its last user closes it.
            let access = stage_access(pool, wanted);
            let device = self.ensure_attached(pool, &record.id, access)?;
            self.ensure_opened(pool, record, access, device, keys)?;
        }
        self.apply_limits(pool, &record.id, &record.limits)?;
        let (AccessType::Mount(_), Some(fs)) = (&wanted.capability.access, record.format.fs())
        else {
            return Ok(());
        };
        self.ensure_group_unless_given(wanted, &self.live_publications(pool, &record.id)?)?;
        let device = self.workload_device(pool, &record.id, DeviceAccess::ReadWrite)?;
        let Some(device) = device else { return Ok(()) };
        match self.ensure_grown(&device, fs, wanted) {
            // It is staged all the same; growing is NodeExpandVolume's to report.
            Err(Error::Precondition(reason)) => {
                tracing::warn!(
                    volume = %record.id,
                    %reason,
                    "cannot grow the filesystem of a staged volume"
                );
                Ok(())
            }
            done => done,
        }
    }

    fn stage_effects(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        wanted: &Stage,
        keys: &VolumeKeys,
    ) -> Result<()> {
        match &wanted.capability.access {
            AccessType::Block => self.stage_block(pool, record, wanted, keys)?,
            AccessType::Mount(mount) => self.stage_mount(pool, record, wanted, mount, keys)?,
        }
        if record.limits.is_unlimited() {
            // Publishing lifts what an earlier device with this number may have left, before any
            // workload uses it.
            return Ok(());
        }
        self.apply_limits(pool, &record.id, &record.limits)
    }

    fn stage_block(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        wanted: &Stage,
        keys: &VolumeKeys,
    ) -> Result<()> {
        let access = match wanted.read_only {
            true => DeviceAccess::ReadOnly,
            false => {
                // Before the workload can write: from here on the volume must not be taken for blank.
                self.mark_raw(pool, record)?;
                DeviceAccess::ReadWrite
            }
        };
        let device = self.ensure_attached(pool, &record.id, access)?;
        self.ensure_opened(pool, record, access, device, keys).map(drop)
    }

    fn stage_mount(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        wanted: &Stage,
        mount: &MountAccess,
        keys: &VolumeKeys,
    ) -> Result<()> {
        let access = stage_access(pool, wanted);
        if access == DeviceAccess::ReadOnly {
            self.prepare_for_readers(pool, record, mount, keys)?;
        }
        let device = self.ensure_attached(pool, &record.id, access)?;
        let (device, fs) = match access {
            DeviceAccess::ReadWrite => {
                let record = self.record_now(pool, &record.id)?;
                sharing(pool).check_published_here(self, &record, wanted)?;
                let device = self.ensure_opened(pool, &record, access, device, keys)?;
                let fs =
                    self.prepare_filesystem(pool, &record, &device, mount, wanted.read_only)?;
                (device, fs)
            }
            DeviceAccess::ReadOnly => {
                let fs = self.prepared_filesystem(pool, &record.id)?;
                (self.ensure_opened(pool, record, access, device, keys)?, fs)
            }
        };
        let request = MountRequest {
            device: &device,
            fs,
            options: mount.flags.options(),
            read_only: wanted.read_only,
        };
        let mounted = self.host().ensure_mounted(&request, &wanted.path);
        with_mount_shortage(pool, &record.id, mounted)?;
        self.ensure_group_of(wanted, &wanted.capability)?;
        match fs {
            // Grown before it was mounted.
            FsType::Ext4 => Ok(()),
            FsType::Xfs | FsType::Btrfs => self.ensure_grown(&device, fs, wanted),
        }
    }

    /// Sets them for all devices that the volume has on this node.
    pub(crate) fn apply_limits(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        limits: &IoLimits,
    ) -> Result<()> {
        for access in [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly] {
            if let Some(device) = self.workload_device(pool, id, access)? {
                self.host().ensure_limits(&device, limits)?;
            }
        }
        Ok(())
    }

    /// The record as it is now that the device is attached and this node is the only writer. The record that the call
    /// began with may be out of date: while the call waited for the device, another node may have formatted and
    /// written the volume.
    pub(crate) fn record_now(&self, pool: &PoolRef, id: &VolumeId) -> Result<VolumeRecord> {
        pool.catalogue().volume(id)?.ok_or_else(|| Error::NoSuchVolume(id.to_string()))
    }

    /// The stage on record, if the kernel agrees that it is still there.
    pub(crate) fn live_stage(&self, pool: &PoolRef, id: &VolumeId) -> Result<Option<Stage>> {
        let Some(stage) = self.host().node_record(id)?.stage else {
            return Ok(None);
        };
        let live = if stage.capability.is_block() {
            self.has_staged_device(pool, id, &stage)?
        } else {
            self.is_mounted_from(pool, id, &stage.path)?
        };
        Ok(live.then_some(stage))
    }

    /// Is a device of this volume what is mounted at the path?
    pub(crate) fn is_mounted_from(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<bool> {
        let Some(mounted) = self.host().mount_at(path)? else {
            return Ok(false);
        };
        let is_mounted = |device: Option<Device>| device.is_some_and(|d| mounted.is_of(&d));
        Ok(is_mounted(self.workload_device(pool, id, DeviceAccess::ReadWrite)?)
            || is_mounted(self.workload_device(pool, id, DeviceAccess::ReadOnly)?))
    }
}

pub(crate) fn wants_read_only(access: &AccessType) -> bool {
    match access {
        AccessType::Block => false,
        AccessType::Mount(mount) => mount.flags.read_only(),
    }
}

/// A mount is read-only by its flags, on a device that can replay a journal. A raw device has to
/// refuse writes itself, and so has one that other nodes read at the same time.
pub(crate) fn stage_access(pool: &PoolRef, stage: &Stage) -> DeviceAccess {
    let refuses_writes = stage.read_only
        && (stage.capability.is_block() || sharing(pool).is_read_with_others(stage));
    if refuses_writes { DeviceAccess::ReadOnly } else { DeviceAccess::ReadWrite }
}

/// NS-03, NS-12; point 2 of docs/specification.md: what has the same effect on the node is the same stage. The
/// filesystem may be named or left to the volume, and the group may be the one that the volume is
/// published for by now.
fn check_same_stage(
    record: &VolumeRecord,
    current: &Stage,
    wanted: &Stage,
    live: &[Publication],
) -> Result<()> {
    if current.path != wanted.path {
        return Err(Error::precondition(format!(
            "cannot stage {}: it is staged at {}, and a volume is staged once on a node; unstage it \
             there first",
            record.label(),
            current.path
        )));
    }
    let same_access = match (&current.capability.access, &wanted.capability.access) {
        (AccessType::Block, AccessType::Block) => true,
        (AccessType::Mount(a), AccessType::Mount(b)) => {
            let same_group = a.group == b.group || is_published_for(live, &wanted.capability);
            a.flags == b.flags && same_group
        }
        (AccessType::Block, AccessType::Mount(_)) | (AccessType::Mount(_), AccessType::Block) => {
            false
        }
    };
    if same_access && current.read_only == wanted.read_only {
        return Ok(());
    }
    let reason = match same_access {
        true => readonly_differs(current.read_only),
        false => capability_differs(&current.capability, &wanted.capability),
    };
    Err(Error::conflict(format!("the stage of {} at {}", record.label(), current.path), reason))
}
