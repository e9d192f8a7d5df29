//! NodeStageVolume and NodeUnstageVolume: from a volume on a pool to a device on this machine
//! and, for mounts, to a filesystem at the staging path.
//!
//! Order of effects: record, device, filesystem, mount. Undone in reverse. So whatever exists
//! has a record, and a call that comes again after a crash finds out what is missing.

use orlop_model::{
    AccessType, Device, DeviceAccess, Error, IoLimits, MountAccess, MountRequest, Publication,
    Result, Stage, TargetPath, VolumeId, VolumeRecord,
};

use crate::engine::{Engine, PoolRef, check_context};
use crate::request::{StageVolume, VolumeRef};

mod filesystem;

impl Engine {
    pub fn stage_volume(&self, request: &StageVolume) -> Result<()> {
        let _lock = self.lock_volume(request.volume.digest())?;
        let (pool, record) = self.require_volume(&request.volume)?;
        check_context(pool, &record, &request.context)?;
        self.check_use(&record, &request.capability)?;
        let wanted = Stage {
            path: request.path.clone(),
            read_only: request.publish.read_only
                || wants_read_only(&request.capability.access)
                || request.capability.mode.is_read_only(),
            capability: request.capability.clone(),
        };
        self.ensure_staged(pool, &record, wanted)
    }

    /// Undoes everything that staging did (NU-02). A path at which nothing is staged is fine,
    /// also for a volume that is gone: clean-up must be able to finish (open point 3).
    pub fn unstage_volume(&self, volume: &VolumeRef, path: &TargetPath) -> Result<()> {
        let VolumeRef::Issued(id) = volume else {
            return self.check_vacant(volume, path);
        };
        let _lock = self.lock_volume(id.digest())?;
        let Some(pool) = self.pool_of(id) else {
            return self.check_vacant(volume, path);
        };
        let node = self.host.node_record(id)?;
        match node.stage {
            Some(stage) if stage.path == *path => {
                self.check_unpublished(pool, id)?;
                self.ensure_unstaged(pool, id, path)
            }
            Some(_) => Ok(()),
            None => self.check_vacant(volume, path),
        }
    }

    pub(crate) fn ensure_staged(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        wanted: Stage,
    ) -> Result<()> {
        if let Some(current) = self.live_stage(pool, &record.id)? {
            return check_same_stage(record, &current, &wanted);
        }
        let mut node = self.host.node_record(&record.id)?;
        node.stage = Some(wanted.clone());
        self.host.save_node_record(&record.id, &node)?;
        let done = self.stage_effects(pool, record, &wanted);
        if done.is_err()
            && let Err(error) = self.ensure_unstaged(pool, &record.id, &wanted.path)
        {
            tracing::warn!(%error, volume = %record.id, "could not undo a failed stage");
        }
        done
    }

    fn stage_effects(&self, pool: &PoolRef, record: &VolumeRecord, wanted: &Stage) -> Result<()> {
        match &wanted.capability.access {
            AccessType::Block => self.stage_block(pool, record, wanted)?,
            AccessType::Mount(mount) => self.stage_mount(pool, record, wanted, mount)?,
        }
        // Also when there are none: the device's number may still have another volume's.
        self.apply_limits(pool, &record.id, &record.limits)
    }

    fn stage_block(&self, pool: &PoolRef, record: &VolumeRecord, wanted: &Stage) -> Result<()> {
        if wanted.read_only {
            pool.ensure_attached(&record.id, DeviceAccess::ReadOnly)?;
            return Ok(());
        }
        // Before the workload can write: from here on nobody may take the volume for blank.
        self.mark_raw(pool, record)?;
        pool.ensure_attached(&record.id, DeviceAccess::ReadWrite)?;
        Ok(())
    }

    fn stage_mount(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        wanted: &Stage,
        mount: &MountAccess,
    ) -> Result<()> {
        let device = pool.ensure_attached(&record.id, DeviceAccess::ReadWrite)?;
        let fs = self.ensure_filesystem(pool, record, &device)?;
        mount.flags.check_fit(fs)?;
        let mut request = MountRequest {
            device: &device,
            fs,
            options: mount.flags.options(),
            read_only: wanted.read_only,
        };
        self.host.ensure_grown_unmounted(&device, fs)?;
        if wanted.read_only {
            // Some filesystems only grow while mounted writable (CV-16).
            request.read_only = false;
            self.host.ensure_mounted(&request, &wanted.path)?;
            self.host.ensure_grown_mounted(&device, fs, &wanted.path)?;
            self.host.ensure_unmounted(&wanted.path)?;
            request.read_only = true;
            return self.host.ensure_mounted(&request, &wanted.path);
        }
        self.host.ensure_mounted(&request, &wanted.path)?;
        self.host.ensure_grown_mounted(&device, fs, &wanted.path)?;
        match mount.group {
            Some(group) => self.host.ensure_group(&wanted.path, group),
            None => Ok(()),
        }
    }

    pub(crate) fn ensure_unstaged(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<()> {
        if self.occupied_by(pool, id, path)? {
            self.host.ensure_unmounted(path)?;
        }
        // Limits stick to a device's number, and the number goes to another volume next.
        self.apply_limits(pool, id, &IoLimits::default())?;
        pool.ensure_detached(id, DeviceAccess::ReadOnly)?;
        pool.ensure_detached(id, DeviceAccess::ReadWrite)?;
        let mut node = self.host.node_record(id)?;
        node.stage = None;
        node.publications.clear();
        self.host.save_node_record(id, &node)
    }

    /// The stage on record, if the kernel agrees that it is still there.
    pub(crate) fn live_stage(&self, pool: &PoolRef, id: &VolumeId) -> Result<Option<Stage>> {
        let Some(stage) = self.host.node_record(id)?.stage else {
            return Ok(None);
        };
        let live = if stage.capability.is_block() {
            pool.attached(id, stage_access(&stage))?.is_some()
        } else {
            self.occupied_by(pool, id, &stage.path)?
        };
        Ok(live.then_some(stage))
    }

    /// Is a device of this volume what is mounted at the path?
    pub(crate) fn occupied_by(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        path: &TargetPath,
    ) -> Result<bool> {
        let Some(occupant) = self.host.occupant(path)? else {
            return Ok(false);
        };
        let is_occupant = |device: Option<Device>| device.is_some_and(|d| occupant.is_of(&d));
        Ok(is_occupant(pool.attached(id, DeviceAccess::ReadWrite)?)
            || is_occupant(pool.attached(id, DeviceAccess::ReadOnly)?))
    }

    /// For a volume of which nothing is recorded here: fine, unless something is at the path.
    pub(crate) fn check_vacant(&self, volume: &VolumeRef, path: &TargetPath) -> Result<()> {
        if self.host.occupant(path)?.is_none() {
            return Ok(());
        }
        let exists = match volume {
            VolumeRef::Issued(id) => self.require_volume(id).is_ok(),
            VolumeRef::Foreign(_) => false,
        };
        if !exists {
            return Err(Error::NoSuchVolume(volume.to_string()));
        }
        Err(Error::precondition(format!(
            "something that is not volume {volume} is mounted at {path}; unmount it by hand"
        )))
    }

    fn check_unpublished(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        match self.live_publications(pool, id)?.first() {
            None => Ok(()),
            Some(Publication { target, .. }) => Err(Error::precondition(format!(
                "volume {id} is still published at {target}; unpublish it first"
            ))),
        }
    }
}

/// A filesystem that is only read still has a writable device: it was grown there first.
/// A mount is read-only by its flags, on a device that can replay a journal; a raw device has to
/// refuse writes itself.
pub(crate) fn stage_access(stage: &Stage) -> DeviceAccess {
    if stage.read_only && stage.capability.is_block() {
        return DeviceAccess::ReadOnly;
    }
    DeviceAccess::ReadWrite
}

pub(crate) fn wants_read_only(access: &AccessType) -> bool {
    match access {
        AccessType::Block => false,
        AccessType::Mount(mount) => mount.flags.read_only(),
    }
}

/// NS-03, NS-12; open point 2: what has the same effect on the node is the same stage. The
/// filesystem may be named or left to the volume.
fn check_same_stage(record: &VolumeRecord, current: &Stage, wanted: &Stage) -> Result<()> {
    if current.path != wanted.path {
        return Err(Error::precondition(format!(
            "volume {} is staged at {}; a volume is staged once on a node",
            record.id, current.path
        )));
    }
    let same_access = match (&current.capability.access, &wanted.capability.access) {
        (AccessType::Block, AccessType::Block) => true,
        (AccessType::Mount(a), AccessType::Mount(b)) => a.flags == b.flags && a.group == b.group,
        (AccessType::Block, AccessType::Mount(_)) | (AccessType::Mount(_), AccessType::Block) => {
            false
        }
    };
    if same_access && current.read_only == wanted.read_only {
        return Ok(());
    }
    Err(Error::conflict(
        format!("volume {} at {}", record.id, current.path),
        "it is staged there with another volume_capability",
    ))
}
