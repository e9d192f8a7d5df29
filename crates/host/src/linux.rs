//! Linux. The kernel is asked what is mounted where; files under the run directory, which a
//! reboot clears together with the mounts, hold only what the kernel does not know.

mod failure;
mod filesystem;
mod freezer;
mod limits;
pub(crate) mod mount_options;
mod mounting;
mod notes;
mod occupancy;
mod off_limits;
mod offer;
pub(crate) mod records;
mod run_dir;
mod survey;
#[cfg(test)]
mod testbed;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_model::{
    Device, DeviceSignature, Error, FsType, FsUuid, Host, IoLimits, MountRequest, NodeRecord,
    Occupant, PoolId, Result, TargetPath, Usage, VolumeId,
};
use orlop_sys::file;
use orlop_sys::thaw_helper::HelperCommand;
use orlop_sys::{loopdev, ownership, rand};

use failure::Doing;
use freezer::Freezer;
use limits::Limiter;
use notes::Notes;
use off_limits::OffLimits;
use offer::Offer;
use records::NodeRecords;
use run_dir::{Mine, RunDirectory};
pub use survey::{Survey, VolumeStanding};

#[derive(Debug, Clone)]
pub struct LinuxHostConfig {
    /// Must be cleared by a reboot, as mounts are: a directory under /run.
    pub run_dir: PathBuf,
    /// Must this process be the only one that uses the run directory?
    pub alone: bool,
    /// Nothing is mounted on, above or in these; the run directory need not be among them.
    pub off_limits: Vec<PathBuf>,
    /// `None`: all whose tools are installed.
    pub filesystems: Option<Vec<FsType>>,
    pub default_fs: Option<FsType>,
    /// The cgroup of the workloads whose I/O is limited, relative to the controller's mount.
    pub workload_cgroup: String,
    /// How long a filesystem stays frozen when nobody thaws it.
    pub freeze_limit: Duration,
    /// The process that thaws should this one be killed; `None`: there is none.
    pub thaw_helper: Option<HelperCommand>,
}

pub struct LinuxHost {
    offer: Offer,
    run_dir: RunDirectory,
    records: NodeRecords,
    freezer: Freezer,
    limiter: Limiter,
    off_limits: OffLimits,
    mine: Option<Mine>,
}

impl LinuxHost {
    pub fn new(config: LinuxHostConfig) -> Result<Self> {
        let run_dir = RunDirectory::ensure(&config.run_dir)?;
        let mine = config.alone.then(|| run_dir.take()).transpose()?;
        let mut off_limits = config.off_limits;
        off_limits.push(config.run_dir);
        Ok(Self {
            off_limits: OffLimits::new(off_limits, run_dir.inline()),
            offer: Offer::choose(config.filesystems, config.default_fs)?,
            records: NodeRecords::new(run_dir.volumes()),
            freezer: Freezer::new(run_dir.frozen(), config.freeze_limit, config.thaw_helper),
            limiter: Limiter::detect(&config.workload_cgroup, run_dir.limited())?,
            run_dir,
            mine,
        })
    }

    /// Would [`Self::new`] refuse this? Changes nothing, and does not mind a daemon that runs.
    pub fn check(config: &LinuxHostConfig) -> Result<()> {
        RunDirectory::check(&config.run_dir)?;
        Offer::choose(config.filesystems.clone(), config.default_fs)?;
        Limiter::check_group(&config.workload_cgroup)
    }

    /// Thaws every filesystem that a note says was frozen when its process ended. For a process
    /// that is alone in the run directory: then nobody else is just making a snapshot.
    pub fn thaw_left_frozen(&self) -> Result<()> {
        self.freezer.thaw_left_frozen()
    }

    /// For an orderly end. Threads that are left wait in the kernel, and a successor need not wait for
    /// them; it has the run directory when this process has ended.
    pub fn leave(&self) {
        if let Some(mine) = &self.mine {
            mine.leave();
        }
    }

    /// Before anything of the pool is used here: only then may somebody who finds a device and no
    /// record take it for a leftover. The pool has the same stamp for as long as no daemon with
    /// another run directory serves it.
    pub fn note_pool(&self, id: &PoolId, stamp: &str) -> Result<()> {
        Notes::new(self.run_dir.pools()).write(&id.to_string(), stamp.as_bytes())
    }

    pub fn is_noted_pool(&self, id: &PoolId, stamp: &str) -> Result<bool> {
        self.run_dir.is_of_pool(id, Some(stamp))
    }

    /// Volumes of the pool are in use of which nothing is recorded here.
    pub fn withdraw_pool(&self, id: &PoolId) -> Result<()> {
        Notes::new(self.run_dir.pools()).ensure_removed(&id.to_string())
    }
}

impl Host for LinuxHost {
    fn filesystems(&self) -> &[FsType] {
        self.offer.filesystems()
    }

    fn check_health(&self) -> Result<()> {
        self.offer.check_tools()
    }

    fn random_uuid(&self) -> Result<FsUuid> {
        let bytes = rand::random_bytes().doing("draw a UUID")?;
        Ok(FsUuid::from_random(bytes))
    }

    fn signature(&self, device: &Device) -> Result<DeviceSignature> {
        filesystem::signature(device)
    }

    fn format(&self, device: &Device, fs: FsType, uuid: FsUuid, options: &[String]) -> Result<()> {
        filesystem::format(device, fs, uuid, options)
    }

    fn check_filesystem(&self, device: &Device, fs: FsType) -> Result<()> {
        filesystem::check(device, fs)
    }

    fn renew_uuid(&self, device: &Device, fs: FsType, uuid: FsUuid) -> Result<()> {
        filesystem::renew_uuid(device, fs, uuid)
    }

    fn ensure_grown_unmounted(&self, device: &Device, fs: FsType) -> Result<()> {
        filesystem::ensure_grown_unmounted(device, fs)
    }

    fn ensure_grown_mounted(&self, device: &Device, fs: FsType, at: &TargetPath) -> Result<()> {
        filesystem::ensure_grown_mounted(device, fs, at, &self.freezer)
    }

    fn occupant(&self, path: &TargetPath) -> Result<Option<Occupant>> {
        occupancy::occupant(path)
    }

    fn device_node_at(&self, path: &TargetPath) -> Result<Option<(u32, u32)>> {
        occupancy::device_node_at(path)
    }

    fn mounts_of(&self, device: &Device) -> Result<Vec<(TargetPath, Occupant)>> {
        occupancy::mounts_of(device)
    }

    fn target_exists(&self, path: &TargetPath) -> Result<bool> {
        occupancy::target_exists(path)
    }

    fn check_stage_path(&self, path: &TargetPath) -> Result<()> {
        self.off_limits.check(path)
    }

    fn ensure_mounted(&self, request: &MountRequest<'_>, target: &TargetPath) -> Result<()> {
        self.off_limits.check_stage(target)?;
        mounting::ensure_mounted(request, target, |place| self.off_limits.check_stage_place(place))
    }

    fn ensure_bound_directory(
        &self,
        source: &TargetPath,
        target: &TargetPath,
        read_only: bool,
    ) -> Result<()> {
        self.off_limits.check(target)?;
        let check = |place: &Path| self.off_limits.check_place(place);
        mounting::ensure_bound_directory(source, target, read_only, check)
    }

    fn ensure_bound_device(&self, device: &Device, target: &TargetPath) -> Result<()> {
        self.off_limits.check(target)?;
        mounting::ensure_bound_device(device, target, |place| self.off_limits.check_place(place))
    }

    fn ensure_unmounted(&self, path: &TargetPath) -> Result<()> {
        mounting::ensure_unmounted(path)
    }

    fn ensure_unmounted_elsewhere(&self, path: &TargetPath) -> Result<()> {
        mounting::drop_copies(path.as_path());
        Ok(())
    }

    fn ensure_target_removed(&self, path: &TargetPath) -> Result<()> {
        mounting::ensure_target_removed(path)
    }

    fn private_stage(&self, id: &VolumeId) -> Result<TargetPath> {
        self.run_dir.private_stage(id)
    }

    fn ensure_group(&self, root: &TargetPath, group: u32) -> Result<()> {
        ownership::apply_group(root.as_path(), group)
            .doing(&format!("give {root} to group {group}"))
    }

    fn usage(&self, path: &TargetPath) -> Result<Usage> {
        let space = file::space(path.as_path()).doing("measure a filesystem")?;
        Ok(Usage {
            total_bytes: space.total,
            available_bytes: space.free,
            total_inodes: space.inodes,
            free_inodes: space.inodes_free,
            has_given_up: file::has_given_up(path.as_path()).doing("look for errors")?,
        })
    }

    fn filesystem_errors(&self, device: &Device) -> Result<u64> {
        orlop_sys::filesystem::errors_on(&device.path).doing("count the errors of a filesystem")
    }

    fn device_size(&self, device: &Device) -> Result<u64> {
        loopdev::size(&device.path).doing("measure a device")
    }

    fn sync_filesystem(&self, mount: &TargetPath) -> Result<()> {
        file::sync_filesystem(mount.as_path()).doing("write back a filesystem")
    }

    fn freeze(&self, mount: &TargetPath) -> Result<()> {
        self.freezer.freeze(mount)
    }

    fn ensure_thawed(&self, mount: &TargetPath) -> Result<bool> {
        self.freezer.ensure_thawed(mount)
    }

    fn ensure_trimmed(&self, mount: &TargetPath) -> Result<()> {
        filesystem::ensure_trimmed(mount)
    }

    fn device_writes(&self, device: &Device) -> Result<Option<u64>> {
        loopdev::writes(device.major, device.minor).doing("count the writes to a device")
    }

    fn sync_device(&self, device: &Device) -> Result<()> {
        file::sync_device(&device.path).doing("write back a device")
    }

    fn check_limits_work(&self) -> Result<()> {
        self.limiter.check()
    }

    fn ensure_limits(&self, device: &Device, limits: &IoLimits) -> Result<()> {
        self.limiter.ensure(device, limits)
    }

    fn node_record(&self, id: &VolumeId) -> Result<NodeRecord> {
        match self.records.read(id) {
            Err(Error::Damaged { what, reason }) => {
                // First: the doctor must not take what is in use for a leftover (decision 0031).
                self.withdraw_pool(id.pool())?;
                let aside = self.records.set_aside(id)?;
                tracing::warn!(
                    volume = %id,
                    reason,
                    aside = %aside.display(),
                    "cannot read {what}; it is set aside, and the kernel is asked what is in use"
                );
                Ok(NodeRecord::default())
            }
            read => read,
        }
    }

    fn save_node_record(&self, id: &VolumeId, record: &NodeRecord) -> Result<()> {
        self.records.save(id, record)
    }

    fn node_records(&self) -> Result<Vec<VolumeId>> {
        self.records.ids()
    }
}
