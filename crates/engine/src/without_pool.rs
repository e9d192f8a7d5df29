//! NodeUnpublishVolume and NodeUnstageVolume of a volume whose pool is absent or not configured: its disk is
//! dead, or was not mounted after a restart.
//!
//! A workload that has ended must not wait for a disk that does not come back. What was done on this node is in
//! the node record and the kernel, and to undo it changes nothing in the pool. So a call undoes what the record
//! names, and what it does not name is left alone: it may be another daemon's.

use std::path::{Path, PathBuf};

use orlop_model::{
    DeviceAccess, DeviceMount, Error, IoLimits, NameDigest, NodeRecord, Publication, Reason,
    Result, Stage, TargetPath, UnservedDevice, VolumeId, only_copy,
};

use crate::engine::Engine;
use crate::node_publish::TargetPathAfter;
use crate::node_stage::unstage::{hidden_at, still_published_at};
use crate::request::VolumeRef;

impl Engine {
    pub(crate) fn unpublish_without_pool(
        &self,
        volume: &VolumeRef,
        id: &VolumeId,
        target: &TargetPath,
        after: TargetPathAfter,
    ) -> Result<()> {
        self.check_none_hung()?;
        let mut node = self.host().node_record(id)?;
        if let Some(recorded) = node.publication(target).cloned() {
            let devices = self.unserved_devices(id)?;
            self.clear_publication(id, &recorded, &devices, after)?;
            node.publications.retain(|publication| publication.target != *target);
            self.release_unserved_reader(id, &node, devices)?;
            self.host().save_node_record(id, &node)?;
            tracing::warn!(volume = %id, %target, "unpublished a volume whose pool is not in service");
        } else if self.host().mount_at(target)?.is_some() {
            return Err(self.why_unserved(id));
        }
        match volume {
            VolumeRef::Issued(_) => Ok(()),
            VolumeRef::Foreign(_) => self.leave_inline(id, &node),
        }
    }

    pub(crate) fn unstage_without_pool(&self, id: &VolumeId, path: &TargetPath) -> Result<()> {
        self.check_none_hung()?;
        let node = self.host().node_record(id)?;
        if let Some(stage) = node.stage.as_ref().filter(|stage| stage.path == *path) {
            self.undo_unserved_stage(id, &node, stage)?;
            tracing::warn!(volume = %id, %path, "unstaged a volume whose pool is not in service");
            return Ok(());
        }
        let is_vacant = self.host().mount_at(path)?.is_none();
        // A raw volume mounts nothing at its staging path.
        let is_detached =
            self.host().devices_without_pool(id)?.is_none_or(|found| found.is_empty());
        match is_vacant && (is_detached || node.stage.is_some()) {
            true => Ok(()),
            false => Err(self.why_unserved(id)),
        }
    }

    /// For the controller's call, which needs the pool where the volume is in use.
    pub(crate) fn check_unused_without_pool(&self, id: &VolumeId) -> Result<()> {
        match self.host().node_record(id)?.is_empty() {
            true => Ok(()),
            false => Err(self.why_unserved(id)),
        }
    }

    /// An inline volume is deleted with its publication, which takes its pool. One whose pool was taken
    /// out of the configuration is known by its node record.
    pub(crate) fn find_inline_of_any_pool(&self, text: &str) -> Result<Option<VolumeId>> {
        let found = match self.find_inline_to_clear(text) {
            Err(error @ Error::Unreachable { .. }) if !self.absent().is_empty() => {
                return Err(inline_unserved(text, error));
            }
            found => found?,
        };
        if found.is_some() {
            return Ok(found);
        }
        let digest = NameDigest::of_text(text);
        for id in self.in_use_of_unknown_pools()? {
            let stage = self.host().node_record(&id)?.stage;
            let is_inline =
                stage.is_some_and(|it| self.host().private_stage(&id).ok() == Some(it.path));
            if *id.digest() == digest && is_inline {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    fn leave_inline(&self, id: &VolumeId, node: &NodeRecord) -> Result<()> {
        if !node.publications.is_empty() {
            return Ok(());
        }
        let path = self.host().private_stage(id)?;
        self.unstage_without_pool(id, &path)?;
        self.host().ensure_target_removed(&path)?;
        tracing::warn!(
            volume = %id,
            pool = %id.pool(),
            "unpublished an inline volume whose pool is not configured; if that pool is served \
             again, the volume is still on it and takes up space: delete it with DeleteVolume"
        );
        Ok(())
    }

    /// What waits in the kernel for a disk cannot be called off.
    fn check_none_hung(&self) -> Result<()> {
        match self.absent().iter().find(|absent| absent.is_hung) {
            None => Ok(()),
            Some(absent) => Err(absent.refusal()),
        }
    }

    /// Why the pool has to come back before the call can be carried out.
    fn why_unserved(&self, id: &VolumeId) -> Error {
        match self.absent().first() {
            Some(absent) => absent.refusal(),
            None => {
                Error::not_served(format!("volume {id}, which is in use on this node"), id.pool())
            }
        }
    }

    fn unserved_devices(&self, id: &VolumeId) -> Result<Vec<UnservedDevice>> {
        self.host().devices_without_pool(id)?.ok_or_else(|| self.why_unserved(id))
    }

    fn clear_publication(
        &self,
        id: &VolumeId,
        recorded: &Publication,
        devices: &[UnservedDevice],
        after: TargetPathAfter,
    ) -> Result<()> {
        let target = &recorded.target;
        if self.is_published_by(id, recorded, devices)? {
            self.unmount(id, target)?;
        } else if self.is_hidden_among(&self.mounts_of_all(devices)?, target) {
            return Err(hidden_at(id, target));
        }
        if self.host().mount_at(target)?.is_none() {
            return self.clear_target(target, Some(recorded), after);
        }
        // Where another volume is published this one is not, which is all that was asked for.
        match self.is_of_another(id, target)? {
            true => Ok(()),
            false => Err(self.why_unserved(id)),
        }
    }

    /// As with a pool: a device node at a target that we recorded was put there by us, even if its
    /// device is gone.
    fn is_published_by(
        &self,
        id: &VolumeId,
        publication: &Publication,
        devices: &[UnservedDevice],
    ) -> Result<bool> {
        let Some(mounted) = self.host().mount_at(&publication.target)? else { return Ok(false) };
        if devices.iter().any(|unserved| mounted.is_of(&unserved.device)) {
            return Ok(true);
        }
        let is_node = publication.capability.is_block() && mounted.is_device_node;
        Ok(is_node && !self.is_of_another(id, &publication.target)?)
    }

    fn is_mounted_of(&self, devices: &[UnservedDevice], path: &TargetPath) -> Result<bool> {
        let mounted = self.host().mount_at(path)?;
        Ok(mounted.is_some_and(|it| devices.iter().any(|unserved| it.is_of(&unserved.device))))
    }

    fn mounts_of_all(&self, devices: &[UnservedDevice]) -> Result<Vec<DeviceMount>> {
        let mut found = Vec::new();
        for unserved in devices {
            found.extend(self.host().mounts_of(&unserved.device)?);
        }
        Ok(found)
    }

    /// The extra read-only device goes with the last publication that could need it.
    fn release_unserved_reader(
        &self,
        id: &VolumeId,
        node: &NodeRecord,
        devices: Vec<UnservedDevice>,
    ) -> Result<()> {
        let staged_read_only = node.stage.as_ref().is_some_and(|stage| stage.read_only);
        if staged_read_only || !node.publications.is_empty() {
            return Ok(());
        }
        for reader in devices.into_iter().filter(|it| it.access == DeviceAccess::ReadOnly) {
            if !reader.is_only_copy && self.host().mounts_of(&reader.device)?.is_empty() {
                self.release_unserved(id, &reader)?;
            }
        }
        Ok(())
    }

    /// In the order of staging with a pool, reversed; each step may be repeated after a crash.
    fn undo_unserved_stage(&self, id: &VolumeId, node: &NodeRecord, stage: &Stage) -> Result<()> {
        let devices = self.unserved_devices(id)?;
        for publication in &node.publications {
            if self.is_published_by(id, publication, &devices)? {
                return Err(still_published_at(id, &publication.target));
            }
        }
        if let Some(lost) = devices.iter().find(|unserved| unserved.is_only_copy) {
            let mounts = self.mounts_of_all(&devices)?;
            return Err(has_only_copy(id, lost, mounts.into_iter().map(|it| it.mount_point)));
        }
        if self.is_mounted_of(&devices, &stage.path)? {
            self.check_written_back(id)?;
            self.unmount(id, &stage.path)?;
        }
        if !stage.capability.is_block() {
            self.host().ensure_unmounted_elsewhere(&stage.path)?;
        }
        if stage.read_only {
            let aside = self.host().private_stage(id)?;
            if self.is_mounted_of(&devices, &aside)? {
                self.host().ensure_unmounted(&aside)?;
            }
            self.host().ensure_target_removed(&aside)?;
        }
        if let Some(there) = self.mounts_of_all(&devices)?.first() {
            return Err(still_published_at(id, there));
        }
        for unserved in &devices {
            self.release_unserved(id, unserved)?;
        }
        self.host().save_node_record(id, &NodeRecord::default())
    }

    /// Limits stick to a device's number, and the number goes to another volume next.
    fn release_unserved(&self, id: &VolumeId, unserved: &UnservedDevice) -> Result<()> {
        self.host().ensure_limits(&unserved.device, &IoLimits::default())?;
        self.host().try_detach_without_pool(id, unserved)
    }
}

fn inline_unserved(text: &str, error: Error) -> Error {
    let reason = format!(
        "it may be on a pool that is not in service, where it has to be deleted ({error}); bring that \
         pool back, or, if it is gone for good, take it out of the configuration and restart the daemon"
    );
    let reason = Reason::explained(reason, error);
    Error::unreachable(format!("unpublish inline volume {text}"), reason)
}

fn has_only_copy(
    id: &VolumeId,
    lost: &UnservedDevice,
    mounted_at: impl Iterator<Item = PathBuf>,
) -> Error {
    let device = &lost.device.path;
    let steps = only_copy::in_order([
        only_copy::unmount_command(&mounted_at.collect::<Vec<_>>()),
        Some(only_copy::copy_commands(device, Path::new("FILE"))),
    ]);
    let device = device.display();
    Error::precondition(format!(
        "cannot detach {device} of volume {id}: the file behind it was removed, and what the workload \
         wrote is on {device} alone; stop the workload and save the data with '{steps}', with the path of \
         a new file for FILE; then, or to give it up, run 'losetup --detach {device}', and try again"
    ))
}
