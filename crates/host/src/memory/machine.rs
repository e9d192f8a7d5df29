//! [`orlop_model::Host`] over maps.

use std::path::PathBuf;

use orlop_model::{
    Device, DeviceIo, DeviceMount, DeviceSignature, Error, FsType, FsUuid, HostDevices,
    HostFilesystems, HostFreezing, HostLimits, HostMounts, HostRecords, IoLimits, MountRequest,
    MountState, NodeRecord, Result, TargetPath, UnservedDevice, Usage, VolumeId,
};

use super::{Freeze, MachineState, MemoryHost, Op};
use crate::same_mount;

const PRIVATE_STAGES: &str = "/memory/inline";

impl HostFilesystems for MemoryHost {
    fn filesystems(&self) -> &[FsType] {
        &self.filesystems
    }

    fn check_health(&self) -> Result<()> {
        self.attempt(Op::CheckHealth).map(drop)
    }

    fn random_uuid(&self) -> Result<FsUuid> {
        let mut state = self.attempt(Op::DrawUuid)?;
        state.uuids_drawn += 1;
        let number = u128::from(state.uuids_drawn);
        Ok(FsUuid::from_random(number.to_be_bytes()))
    }

    fn signature(&self, device: &Device) -> Result<DeviceSignature> {
        Ok(self.attempt(Op::Probe)?.device(device).signature)
    }

    fn format(&self, device: &Device, fs: FsType, uuid: FsUuid, _: &[String]) -> Result<()> {
        let mut state = self.attempt(Op::Format)?;
        if state.is_mounted(device) {
            let reason = "the device is mounted";
            return Err(Error::failed(format!("format {}", number(device)), reason));
        }
        let formatted = state.device(device);
        formatted.signature = clean_filesystem(fs, uuid);
        formatted.filesystem_size = formatted.size;
        state.done(Op::Format, format!("{} {fs}", number(device)));
        Ok(())
    }

    fn check_filesystem(&self, device: &Device, _: FsType) -> Result<()> {
        let mut state = self.attempt(Op::CheckFilesystem)?;
        let checked = &mut state.device(device).signature;
        if let DeviceSignature::Filesystem { fs, uuid, .. } = *checked {
            *checked = clean_filesystem(fs, uuid);
        }
        state.done(Op::CheckFilesystem, number(device));
        Ok(())
    }

    /// As on Linux, only btrfs needs it.
    fn renew_uuid(&self, device: &Device, fs: FsType, uuid: FsUuid) -> Result<()> {
        let mut state = self.attempt(Op::RenewUuid)?;
        if fs == FsType::Btrfs {
            state.device(device).signature = clean_filesystem(fs, uuid);
            state.done(Op::RenewUuid, number(device));
        }
        Ok(())
    }

    /// Where nothing is to grow, this is all that is asked of the machine, and fails as growing does.
    fn unmounted_growth(
        &self,
        device: &Device,
        fs: FsType,
        was_interrupted: bool,
    ) -> Result<Option<u64>> {
        let is_too_small = {
            let mut state = self.lock();
            let found = state.device(device);
            found.filesystem_size < found.size
        };
        if fs == FsType::Ext4 && (was_interrupted || is_too_small) {
            return Ok(Some(0));
        }
        self.attempt(Op::GrowUnmounted).map(|_| None)
    }

    fn check_before_growth(&self, device: &Device, _: FsType) -> Result<()> {
        self.attempt(Op::CheckBeforeGrowth)?.done(Op::CheckBeforeGrowth, number(device));
        Ok(())
    }

    fn repair_interrupted_growth(&self, device: &Device, _: FsType) -> Result<()> {
        self.attempt(Op::RepairGrowth)?.done(Op::RepairGrowth, number(device));
        Ok(())
    }

    fn ensure_grown_unmounted(&self, device: &Device, fs: FsType) -> Result<()> {
        let mut state = self.attempt(Op::GrowUnmounted)?;
        if fs == FsType::Ext4 {
            state.grow(Op::GrowUnmounted, device);
        }
        Ok(())
    }

    fn ensure_grown_mounted(&self, device: &Device, _: FsType, at: &TargetPath) -> Result<()> {
        let mut state = self.attempt(Op::GrowMounted)?;
        if !state.mounts.get(at).is_some_and(|there| there.is_of(device)) {
            return Err(Error::precondition(format!("nothing to grow at {at}")));
        }
        state.grow(Op::GrowMounted, device);
        Ok(())
    }

    fn usage(&self, path: &TargetPath) -> Result<Usage> {
        let state = self.attempt(Op::MeasureUsage)?;
        let there = state.mounts.get(path).ok_or_else(|| {
            Error::failed("measure a filesystem", format!("nothing is mounted at {path}"))
        })?;
        let device = state.devices.get(&(there.major, there.minor));
        let total = device.map_or(0, |device| device.filesystem_size);
        Ok(Usage {
            total_bytes: total,
            available_bytes: total,
            total_inodes: 1024,
            free_inodes: 1024,
            has_given_up: device.is_some_and(|device| device.has_given_up),
        })
    }

    fn filesystem_errors(&self, device: &Device) -> Result<u64> {
        Ok(self.attempt(Op::MeasureUsage)?.device(device).errors)
    }

    fn sync_filesystem(&self, mount: &TargetPath) -> Result<Option<String>> {
        let mut state = self.attempt(Op::SyncFilesystem)?;
        state.done(Op::SyncFilesystem, mount.to_string());
        Ok(state.failed_writebacks.remove(mount))
    }

    fn lost_writes_at(&self, mount: &TargetPath, _: &Device) -> Result<Option<String>> {
        Ok(self.lock().failed_writebacks.remove(mount))
    }

    fn ensure_trimmed(&self, mount: &TargetPath) -> Result<()> {
        let mut state = self.attempt(Op::Trim)?;
        if state.mounts.get(mount).is_none_or(|there| there.is_device_node) {
            return Err(Error::precondition(format!("nothing to trim at {mount}")));
        }
        state.done(Op::Trim, mount.to_string());
        Ok(())
    }
}

impl HostMounts for MemoryHost {
    fn mount_at(&self, path: &TargetPath) -> Result<Option<MountState>> {
        let state = self.attempt(Op::LookUp)?;
        Ok(state.mounts.get(path).copied().filter(|_| !state.is_covered(path)))
    }

    fn device_node_at(&self, path: &TargetPath) -> Result<Option<(u32, u32)>> {
        let there = self.mount_at(path)?.filter(|there| there.is_device_node);
        Ok(there.map(|there| (there.major, there.minor)))
    }

    fn mounts_of(&self, device: &Device) -> Result<Vec<DeviceMount>> {
        let state = self.attempt(Op::LookUp)?;
        let of_device = state.mounts.iter().filter(|(_, mounted)| mounted.is_of(device));
        let described = |(path, mounted): (&TargetPath, &MountState)| DeviceMount {
            mount_point: path.as_path().to_owned(),
            is_device_node: mounted.is_device_node,
            is_hidden: state.is_covered(path),
        };
        Ok(of_device.map(described).collect())
    }

    fn resolved(&self, path: &TargetPath) -> PathBuf {
        path.as_path().to_owned()
    }

    fn target_exists(&self, path: &TargetPath) -> Result<bool> {
        let state = self.attempt(Op::LookUp)?;
        let exists = state.mounts.contains_key(path) || state.targets.contains(path);
        Ok(exists && !state.is_covered(path))
    }

    fn check_stage_path(&self, path: &TargetPath) -> Result<()> {
        match path.as_path().starts_with(PRIVATE_STAGES) {
            true => Err(Error::invalid("path", format!("{path} is for private stages"))),
            false => Ok(()),
        }
    }

    fn ensure_mounted(&self, request: &MountRequest<'_>, target: &TargetPath) -> Result<()> {
        let mut state = self.attempt(Op::Mount)?;
        if let Some(there) = state.mounts.get(target) {
            return same_mount::check_filesystem(target, there, request);
        }
        match state.device(request.device).signature {
            DeviceSignature::Filesystem { fs, .. } if fs == request.fs => {}
            DeviceSignature::Filesystem { .. }
            | DeviceSignature::Blank
            | DeviceSignature::Foreign => {
                let doing = format!("mount {} at {target}", request.fs);
                return Err(Error::failed(doing, "bad superblock"));
            }
        }
        let mounted = MountState {
            read_only: request.read_only,
            filesystem_read_only: request.read_only,
            ..mount_of(request.device)
        };
        state.mount(target, mounted);
        let on = format!("{} {target}", number(request.device));
        state.done(Op::Mount, on);
        Ok(())
    }

    fn ensure_bound_directory(
        &self,
        source: &TargetPath,
        target: &TargetPath,
        read_only: bool,
    ) -> Result<()> {
        let mut state = self.attempt(Op::BindDirectory)?;
        let staged = same_mount::staged(source, state.mounts.get(source).copied())?;
        if let Some(there) = state.mounts.get(target) {
            return same_mount::check_bind(target, there, &staged, read_only);
        }
        let bound = MountState { read_only: read_only || staged.read_only, ..staged };
        state.mount(target, bound);
        state.done(Op::BindDirectory, target.to_string());
        Ok(())
    }

    fn ensure_bound_device(&self, device: &Device, target: &TargetPath) -> Result<()> {
        let mut state = self.attempt(Op::BindDevice)?;
        if let Some(there) = state.mounts.get(target) {
            return same_mount::check_device(target, there, device);
        }
        let bound = MountState { is_device_node: true, ..mount_of(device) };
        state.mount(target, bound);
        state.done(Op::BindDevice, format!("{} {target}", number(device)));
        Ok(())
    }

    fn ensure_unmounted(&self, path: &TargetPath) -> Result<()> {
        let mut state = self.attempt(Op::Unmount)?;
        if !state.is_covered(path) && state.mounts.remove(path).is_some() {
            state.done(Op::Unmount, path.to_string());
        }
        Ok(())
    }

    /// There is one mount namespace only.
    fn ensure_unmounted_elsewhere(&self, _: &TargetPath) -> Result<()> {
        Ok(())
    }

    fn ensure_target_removed(&self, path: &TargetPath) -> Result<()> {
        let mut state = self.attempt(Op::RemoveTarget)?;
        if state.is_covered(path) {
            return Ok(());
        }
        if state.mounts.contains_key(path) {
            return Err(Error::precondition(format!("{path} is still mounted")));
        }
        if state.targets.remove(path) {
            state.done(Op::RemoveTarget, path.to_string());
        }
        Ok(())
    }

    fn private_stage(&self, id: &VolumeId) -> Result<TargetPath> {
        TargetPath::parse("private_stage", &format!("{PRIVATE_STAGES}/{id}"))
    }

    fn ensure_group(&self, root: &TargetPath, group: u32) -> Result<()> {
        let mut state = self.attempt(Op::SetGroup)?;
        if state.groups.insert(root.clone(), group) != Some(group) {
            state.done(Op::SetGroup, format!("{root} {group}"));
        }
        Ok(())
    }
}

impl HostDevices for MemoryHost {
    fn device_size(&self, device: &Device) -> Result<u64> {
        Ok(self.attempt(Op::MeasureDevice)?.device(device).size)
    }

    fn device_writes(&self, device: &Device) -> Result<Option<u64>> {
        Ok(Some(self.lock().writes.get(&(device.major, device.minor)).copied().unwrap_or(0)))
    }

    fn device_io(&self, device: &Device) -> Result<DeviceIo> {
        let writes = self.device_writes(device)?.unwrap_or(0);
        Ok(DeviceIo { writes, ..DeviceIo::default() })
    }

    fn note_attached(&self, _: &VolumeId, _: &Device) -> Result<()> {
        Ok(())
    }

    fn sync_device(&self, device: &Device) -> Result<()> {
        let mut state = self.attempt(Op::SyncDevice)?;
        state.done(Op::SyncDevice, number(device));
        Ok(())
    }

    fn lost_writes_on(&self, _: &Device) -> Result<Option<String>> {
        Ok(None)
    }

    fn devices_without_pool(&self, id: &VolumeId) -> Result<Option<Vec<UnservedDevice>>> {
        Ok(self.attempt(Op::LookUp)?.unserved.get(id).cloned())
    }

    fn try_detach_without_pool(&self, id: &VolumeId, device: &UnservedDevice) -> Result<()> {
        let mut state = self.attempt(Op::Detach)?;
        if let Some(devices) = state.unserved.get_mut(id) {
            devices.retain(|other| other != device);
        }
        state.done(Op::Detach, number(&device.device));
        Ok(())
    }
}

impl HostFreezing for MemoryHost {
    fn freeze(&self, mount: &TargetPath) -> Result<()> {
        let mut state = self.attempt(Op::Freeze)?;
        if !state.mounts.contains_key(mount) || state.freezes.get(mount) == Some(&Freeze::Holds) {
            return Err(Error::precondition(format!("{mount} cannot be frozen")));
        }
        state.freezes.insert(mount.clone(), Freeze::Holds);
        state.done(Op::Freeze, mount.to_string());
        Ok(())
    }

    fn ensure_thawed(&self, mount: &TargetPath) -> Result<bool> {
        let mut state = self.attempt(Op::Thaw)?;
        let freeze = state.freezes.remove(mount);
        if freeze.is_some() {
            state.done(Op::Thaw, mount.to_string());
        }
        Ok(freeze == Some(Freeze::Holds))
    }
}

impl HostLimits for MemoryHost {
    fn check_limits_work(&self) -> Result<()> {
        self.attempt(Op::CheckLimits).map(drop)
    }

    fn ensure_limits(&self, device: &Device, limits: &IoLimits) -> Result<()> {
        let mut state = self.attempt(Op::SetLimits)?;
        let current = &mut state.device(device).limits;
        if std::mem::replace(current, *limits) != *limits {
            state.done(Op::SetLimits, number(device));
        }
        Ok(())
    }
}

impl HostRecords for MemoryHost {
    fn node_record(&self, id: &VolumeId) -> Result<NodeRecord> {
        let state = self.attempt(Op::ReadRecord)?;
        Ok(state.records.get(id).cloned().unwrap_or_default())
    }

    fn save_node_record(&self, id: &VolumeId, record: &NodeRecord) -> Result<()> {
        let mut state = self.attempt(Op::SaveRecord)?;
        match record.is_empty() {
            true => state.records.remove(id),
            false => state.records.insert(id.clone(), record.clone()),
        };
        if record.stage.is_none() {
            state.lost_writes.remove(id);
        }
        state.done(Op::SaveRecord, id.to_string());
        Ok(())
    }

    fn lost_writes(&self, id: &VolumeId) -> Option<String> {
        self.lock().lost_writes.get(id).cloned()
    }

    fn note_lost_writes(&self, id: &VolumeId, reason: &str) -> Result<bool> {
        Ok(self.lock().lost_writes.insert(id.clone(), reason.to_owned()).is_none())
    }

    fn node_records(&self) -> Result<Vec<VolumeId>> {
        let state = self.attempt(Op::ListRecords)?;
        Ok(state.records.keys().cloned().collect())
    }
}

impl MachineState {
    fn mount(&mut self, target: &TargetPath, mounted: MountState) {
        self.targets.insert(target.clone());
        self.mounts.insert(target.clone(), mounted);
    }

    fn grow(&mut self, op: Op, device: &Device) {
        let grown = self.device(device);
        if grown.filesystem_size < grown.size {
            grown.filesystem_size = grown.size;
            self.done(op, number(device));
        }
    }
}

fn number(device: &Device) -> String {
    format!("{}:{}", device.major, device.minor)
}

fn clean_filesystem(fs: FsType, uuid: FsUuid) -> DeviceSignature {
    DeviceSignature::Filesystem { fs, uuid, needs_check: false }
}

fn mount_of(device: &Device) -> MountState {
    MountState {
        major: device.major,
        minor: device.minor,
        is_device_node: false,
        read_only: false,
        filesystem_read_only: false,
    }
}
