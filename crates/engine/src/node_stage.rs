//! NodeStageVolume and NodeUnstageVolume: from a volume on a pool to a device on this machine
//! and, for mounts, to a filesystem at the staging path.
//!
//! Order of effects: record, device, filesystem, mount. Undone in reverse. So whatever exists
//! has a record, and a call that comes again after a crash finds out what is missing.

use orlop_model::{
    AccessType, Device, DeviceAccess, Error, FsType, IoLimits, MountAccess, MountRequest,
    NodeRecord, Publication, Reason, Result, Stage, TargetPath, VolumeId, VolumeRecord,
};

use crate::difference::{capability_differs, readonly_differs};
use crate::engine::{Engine, PoolRef, check_context};
use crate::mount_group::is_published_for;
use crate::request::{StageVolume, VolumeRef};
use crate::rollback::rolled_back;
use crate::sharing::{check_answers, check_can_be_unmounted, check_reachable, stage_access};

mod filesystem;
mod readers;
mod unrecorded;

pub(crate) use unrecorded::FoundOnNode;

impl Engine {
    pub fn stage_volume(&self, request: &StageVolume) -> Result<()> {
        let _locks = self.lock_volume_at(request.volume.digest(), &request.path)?;
        let (pool, record) = self.require_subject(&request.volume)?;
        check_context(pool, &record, &request.context)?;
        self.check_use(&record, &request.capability)?;
        self.host.check_stage_path(&request.path)?;
        let wanted = Stage {
            path: request.path.clone(),
            read_only: request.publish.read_only
                || wants_read_only(&request.capability.access)
                || request.capability.mode.is_read_only(),
            capability: request.capability.clone(),
        };
        self.ensure_staged(pool, &record, wanted).map(drop)
    }

    /// Undoes everything that staging did (NU-02). A path at which nothing is staged is fine,
    /// also for a volume that is gone: clean-up must be able to finish (open point 3).
    pub fn unstage_volume(&self, volume: &VolumeRef, path: &TargetPath) -> Result<()> {
        let VolumeRef::Issued(id) = volume else {
            return self.check_vacant(volume, path);
        };
        let _locks = self.lock_volume_at(id.digest(), path)?;
        let Some(pool) = self.pool_of(id)? else {
            // A raw volume mounts nothing at its staging path.
            self.check_unused_without_pool(id, |node| !node.is_empty())?;
            return self.check_vacant(volume, path);
        };
        let node = self.host.node_record(id)?;
        match node.stage {
            Some(stage) if stage.path == *path => {
                self.check_unpublished(pool, id)?;
                check_answers(pool, id)?;
                self.ensure_unstaged(pool, id, path)
            }
            // The same place by another path, or a stage of which the record was lost.
            Some(stage) if self.is_mounted_from(pool, id, path)? => {
                self.check_unpublished(pool, id)?;
                check_answers(pool, id)?;
                pool.devices().check_detachable(id)?;
                self.unmount(id, path)?;
                self.host.ensure_unmounted_elsewhere(path)?;
                match self.live_stage(pool, id)? {
                    Some(_) => Ok(()),
                    None => self.ensure_unstaged(pool, id, &stage.path),
                }
            }
            Some(_) => Ok(()),
            // The record is lost, but the kernel knows whose this is.
            None if self.is_mounted_from(pool, id, path)? => {
                self.check_mounted_only_at(pool, id, path)?;
                check_answers(pool, id)?;
                self.ensure_unstaged(pool, id, path)
            }
            None => {
                self.check_vacant(volume, path)?;
                self.release_unrecorded(pool, id)
            }
        }
    }

    /// A caller that fails later undoes no more than was done here, by [`Engine::undo_stage`].
    pub(crate) fn ensure_staged(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        wanted: Stage,
    ) -> Result<FoundOnNode> {
        let current = self.live_stage(pool, &record.id)?;
        // First: a stage for another use is there already, whatever the volume is published for.
        if let Some(current) = &current {
            let live = self.live_publications(pool, &record.id)?;
            check_same_stage(record, current, &wanted, &live)?;
        }
        self.check_published_here(pool, record, &wanted)?;
        if current.is_some() {
            check_reachable(pool, &record.id)?;
            self.complete_stage(pool, record, &wanted)?;
            return Ok(FoundOnNode::Stage);
        }
        self.check_room_for(pool, &record.id)?;
        let mut node = self.host.node_record(&record.id)?;
        let found = self.found_without_record(pool, &record.id, &node, &wanted)?;
        node.stage = Some(wanted.clone());
        self.host.save_node_record(&record.id, &node)?;
        let done = self.stage_effects(pool, record, &wanted);
        let undo = || self.undo_stage(pool, &record.id, &wanted, found);
        rolled_back(done.map(|()| found), "stage", &record.id, undo)
    }

    /// What comes after the mount, for a volume that is mounted already: the call before may have
    /// been killed right there.
    fn complete_stage(&self, pool: &PoolRef, record: &VolumeRecord, wanted: &Stage) -> Result<()> {
        if wanted.capability.is_block() {
            // After a refused unstage it would go with its last user.
            pool.devices().ensure_attached(&record.id, stage_access(pool, wanted))?;
        }
        self.apply_limits(pool, &record.id, &record.limits)?;
        let (AccessType::Mount(_), Some(fs)) = (&wanted.capability.access, record.format.fs())
        else {
            return Ok(());
        };
        self.ensure_group_unless_given(wanted, &self.live_publications(pool, &record.id)?)?;
        let Some(device) = pool.devices().attached(&record.id, DeviceAccess::ReadWrite)? else {
            return Ok(());
        };
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
            pool.devices().ensure_attached(&record.id, DeviceAccess::ReadOnly)?;
            return Ok(());
        }
        // Before the workload can write: from here on the volume must not be taken for blank.
        self.mark_raw(pool, record)?;
        pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite)?;
        Ok(())
    }

    fn stage_mount(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        wanted: &Stage,
        mount: &MountAccess,
    ) -> Result<()> {
        let access = stage_access(pool, wanted);
        if access == DeviceAccess::ReadOnly {
            self.prepare_for_readers(pool, record, mount)?;
        }
        let device = pool.devices().ensure_attached(&record.id, access)?;
        let fs = match access {
            DeviceAccess::ReadWrite => {
                let record = self.record_now(pool, &record.id)?;
                self.check_published_here(pool, &record, wanted)?;
                self.prepare_filesystem(pool, &record, &device, mount, wanted.read_only)?
            }
            DeviceAccess::ReadOnly => self.prepared_filesystem(pool, &record.id)?,
        };
        let request = MountRequest {
            device: &device,
            fs,
            options: mount.flags.options(),
            read_only: wanted.read_only,
        };
        self.host.ensure_mounted(&request, &wanted.path)?;
        self.ensure_group_of(wanted, &wanted.capability)?;
        self.ensure_grown(&device, fs, wanted)
    }

    /// For one who holds the device and so is the only writer. What the call began with may be out
    /// of date: while it waited for the device, the volume may have been at another node, and what
    /// was blank then may hold data now.
    fn record_now(&self, pool: &PoolRef, id: &VolumeId) -> Result<VolumeRecord> {
        pool.catalogue().volume(id)?.ok_or_else(|| Error::NoSuchVolume(id.to_string()))
    }

    /// Makes what is on the device ready to be mounted at its full size.
    fn prepare_filesystem(
        &self,
        pool: &PoolRef,
        record: &VolumeRecord,
        device: &Device,
        mount: &MountAccess,
        read_only: bool,
    ) -> Result<FsType> {
        let fs = self.ensure_filesystem(pool, record, device)?;
        mount.flags.check_fit(fs)?;
        self.host.ensure_grown_unmounted(device, fs)?;
        if read_only {
            self.grow_aside(record, device, fs)?;
        }
        Ok(fs)
    }

    /// Some filesystems grow only while they are mounted writable (CV-16). Not at the staging
    /// path: a crash here must not leave a writable mount where a read-only one is expected.
    fn grow_aside(&self, record: &VolumeRecord, device: &Device, fs: FsType) -> Result<()> {
        let aside = self.host.private_stage(&record.id)?;
        let request = MountRequest { device, fs, options: Vec::new(), read_only: false };
        self.host.ensure_mounted(&request, &aside)?;
        self.host.ensure_grown_mounted(device, fs, &aside)?;
        self.host.ensure_unmounted(&aside)?;
        self.host.ensure_target_removed(&aside)
    }

    fn ensure_grown(&self, device: &Device, fs: FsType, stage: &Stage) -> Result<()> {
        match stage.read_only {
            true => Ok(()),
            false => self.host.ensure_grown_mounted(device, fs, &stage.path),
        }
    }

    /// The machine knows paths, but not of which volume.
    pub(crate) fn unmount(&self, id: &VolumeId, path: &TargetPath) -> Result<()> {
        match self.host.ensure_unmounted(path) {
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
        let mut node = self.host.node_record(id)?;
        pool.devices().check_detachable(id)?;
        if self.is_mounted_from(pool, id, path)? {
            check_can_be_unmounted(pool, id, node.stage.as_ref())?;
            self.unmount(id, path)?;
        }
        // Also when it was unmounted before: a crash may have come between the two.
        if node.stage.as_ref().is_none_or(|stage| !stage.capability.is_block()) {
            self.host.ensure_unmounted_elsewhere(path)?;
        }
        if node.stage.as_ref().is_some_and(|stage| stage.read_only) {
            self.clear_aside(pool, id)?;
        }
        self.release_devices(pool, id, node.stage.as_ref())?;
        self.leave_readers(pool, id)?;
        node.stage = None;
        node.publications = self.present_publications(pool, id)?;
        self.host.save_node_record(id, &node)
    }

    /// What a crash in [`Engine::grow_aside`] may have left.
    fn clear_aside(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        let aside = self.host.private_stage(id)?;
        if self.is_mounted_from(pool, id, &aside)? {
            self.host.ensure_unmounted(&aside)?;
        }
        self.host.ensure_target_removed(&aside)
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
        let detached = pool
            .devices()
            .ensure_detached(id, DeviceAccess::ReadOnly)
            .and_then(|()| pool.devices().ensure_detached(id, DeviceAccess::ReadWrite));
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
        if let Some(device) = pool.devices().attached(id, access)? {
            if let Some(there) = self.host.mounts_of(&device)?.first() {
                return Err(Error::precondition(format!(
                    "cannot detach {} of volume {id}: it is in use at {there}; unpublish it there \
                     first",
                    device.path.display()
                )));
            }
            self.host.ensure_limits(&device, &IoLimits::default())?;
        }
        pool.devices().ensure_detached(id, access)
    }

    /// The stage on record, if the kernel agrees that it is still there.
    pub(crate) fn live_stage(&self, pool: &PoolRef, id: &VolumeId) -> Result<Option<Stage>> {
        let Some(stage) = self.host.node_record(id)?.stage else {
            return Ok(None);
        };
        let live = if stage.capability.is_block() {
            pool.devices().attached(id, stage_access(pool, &stage))?.is_some()
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
        let Some(mounted) = self.host.mount_at(path)? else {
            return Ok(false);
        };
        let is_mounted = |device: Option<Device>| device.is_some_and(|d| mounted.is_of(&d));
        Ok(is_mounted(pool.devices().attached(id, DeviceAccess::ReadWrite)?)
            || is_mounted(pool.devices().attached(id, DeviceAccess::ReadOnly)?))
    }

    /// For a volume of which nothing is recorded here: fine, unless something is at the path.
    pub(crate) fn check_vacant(&self, volume: &VolumeRef, path: &TargetPath) -> Result<()> {
        if self.host.mount_at(path)?.is_none() {
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

    /// For a volume whose pool is not configured here: what the node record has of it can be undone
    /// only with the pool.
    pub(crate) fn check_unused_without_pool(
        &self,
        id: &VolumeId,
        is_used: impl Fn(&NodeRecord) -> bool,
    ) -> Result<()> {
        if is_used(&self.host.node_record(id)?) {
            let what = format!("volume {id}, which is in use on this node");
            return Err(Error::not_served(what, id.pool()));
        }
        Ok(())
    }

    fn check_unpublished(&self, pool: &PoolRef, id: &VolumeId) -> Result<()> {
        let publications = self.present_publications(pool, id)?;
        let Some(Publication { target, .. }) = publications.first() else { return Ok(()) };
        self.check_not_hidden(pool, id, target)?;
        Err(Error::precondition(format!(
            "cannot unstage volume {id}: it is still published at {target}; unpublish it first"
        )))
    }
}

pub(crate) fn wants_read_only(access: &AccessType) -> bool {
    match access {
        AccessType::Block => false,
        AccessType::Mount(mount) => mount.flags.read_only(),
    }
}

/// NS-03, NS-12; open point 2: what has the same effect on the node is the same stage. The
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
