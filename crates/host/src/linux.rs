//! Linux. The kernel is asked what is mounted where; files under the run directory, which a
//! reboot clears together with the mounts, hold only what the kernel does not know.

mod failure;
mod filesystem;
mod freezer;
mod fs_tools;
mod limits;
mod machine_scan;
pub(crate) mod mount_options;
mod mounting;
mod pool_marks;
mod run_dir;
pub(crate) mod run_files;
#[cfg(test)]
mod testbed;
#[cfg(test)]
mod tests;
mod unserved_devices;

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_model::{
    Device, DeviceMount, DeviceSignature, Error, FsType, FsUuid, Host, IoLimits, MountRequest,
    MountState, NodeRecord, PoolId, Result, TargetPath, UnservedDevice, Usage, VolumeId,
};
use orlop_sys::file;
use orlop_sys::thaw_helper::HelperCommand;
use orlop_sys::{loopdev, ownership, rand};

use failure::cannot;
use freezer::Freezer;
pub use freezer::ThawsUnderWay;
use fs_tools::FsTools;
use limits::Limiter;
pub use machine_scan::{MachineScan, VolumeExistence};
use mounting::Mounter;
use pool_marks::PoolMarks;
pub use pool_marks::ServedPool;
use run_dir::{RunDirectory, RunDirectoryLock};
use run_files::NodeRecords;

#[derive(Debug, Clone)]
pub struct LinuxHostConfig {
    /// Must be cleared by a reboot, as mounts are: a directory under /run.
    pub run_dir: PathBuf,
    /// Must this process be the only one that uses the run directory?
    pub alone: bool,
    /// Nothing is mounted on, above or in these; the run directory need not be among them.
    pub protected_paths: Vec<PathBuf>,
    /// `None`: all whose tools are installed.
    pub filesystems: Option<Vec<FsType>>,
    pub default_fs: Option<FsType>,
    /// The cgroup of the workloads whose I/O is limited, relative to the controller's mount.
    pub workload_cgroup: String,
    /// How long a filesystem stays frozen when its caller does not thaw it.
    pub freeze_limit: Duration,
    /// The process that thaws should this one be killed; `None`: there is none.
    pub thaw_helper: Option<HelperCommand>,
}

pub struct LinuxHost {
    fs_tools: FsTools,
    run_dir: RunDirectory,
    records: NodeRecords,
    freezer: Freezer,
    limiter: Limiter,
    mounter: Mounter,
    lock: Option<RunDirectoryLock>,
}

impl LinuxHost {
    pub fn new(config: LinuxHostConfig) -> Result<Self> {
        let run_dir = RunDirectory::ensure(&config.run_dir)?;
        let lock = config.alone.then(|| run_dir.take()).transpose()?;
        let mut protected_paths = config.protected_paths;
        protected_paths.push(config.run_dir);
        Ok(Self {
            mounter: Mounter::new(protected_paths, run_dir.inline()),
            fs_tools: FsTools::choose(config.filesystems, config.default_fs)?,
            records: NodeRecords::new(run_dir.volumes()),
            freezer: Freezer::new(run_dir.frozen(), config.freeze_limit, config.thaw_helper),
            limiter: Limiter::detect(&config.workload_cgroup, run_dir.limited())?,
            run_dir,
            lock,
        })
    }

    /// Would [`Self::new`] refuse this? Changes nothing, and does not mind a daemon that runs.
    pub fn check(config: &LinuxHostConfig) -> Result<()> {
        RunDirectory::check(&config.run_dir)?;
        FsTools::choose(config.filesystems.clone(), config.default_fs)?;
        Limiter::check_group(&config.workload_cgroup)
    }

    /// Thaws every filesystem that a marker says was frozen when its process ended. For a process
    /// that is alone in the run directory: then no other process is just making a snapshot.
    pub fn begin_to_thaw_left_frozen(&self) -> Result<ThawsUnderWay> {
        self.freezer.begin_to_thaw_left_frozen()
    }

    /// For an orderly end. Threads that are left wait in the kernel, and a successor need not wait for
    /// them; it has the run directory when this process has ended.
    pub fn leave(&self) {
        if let Some(lock) = &self.lock {
            lock.leave();
        }
    }

    /// Before anything of the pool is used here: only then may the doctor, if it finds a device and
    /// no record, take it for an orphan. The pool has the same stamp for as long as no daemon with
    /// another run directory serves it; `None`: volumes of the pool are in use of which nothing is
    /// recorded here.
    pub fn mark_pool(
        &self,
        id: &PoolId,
        stamp: Option<&str>,
        name: &str,
        path: &Path,
    ) -> Result<()> {
        self.pool_marks().ensure(id, stamp, name, path)
    }

    pub fn is_marked_pool(&self, id: &PoolId, stamp: &str) -> Result<bool> {
        self.pool_marks().is_stamped(id, stamp)
    }

    /// By daemons with this run directory, since this machine started. Makes nothing.
    pub fn served_pools(run_dir: &Path) -> Result<Vec<ServedPool>> {
        PoolMarks::new(RunDirectory::at(run_dir)?.pools()).served()
    }

    fn pool_marks(&self) -> PoolMarks {
        PoolMarks::new(self.run_dir.pools())
    }
}

impl Host for LinuxHost {
    fn filesystems(&self) -> &[FsType] {
        self.fs_tools.filesystems()
    }

    fn check_health(&self) -> Result<()> {
        self.fs_tools.check_tools()
    }

    fn random_uuid(&self) -> Result<FsUuid> {
        let bytes = rand::random_bytes().map_err(cannot("generate a UUID"))?;
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

    fn mount_at(&self, path: &TargetPath) -> Result<Option<MountState>> {
        mounting::mount_at(path)
    }

    fn device_node_at(&self, path: &TargetPath) -> Result<Option<(u32, u32)>> {
        mounting::device_node_at(path)
    }

    fn mounts_of(&self, device: &Device) -> Result<Vec<DeviceMount>> {
        mounting::mounts_of(device)
    }

    fn resolved(&self, path: &TargetPath) -> PathBuf {
        mounting::resolved(path.as_path())
    }

    fn target_exists(&self, path: &TargetPath) -> Result<bool> {
        mounting::target_exists(path)
    }

    fn check_stage_path(&self, path: &TargetPath) -> Result<()> {
        self.mounter.check(path)
    }

    fn ensure_mounted(&self, request: &MountRequest<'_>, target: &TargetPath) -> Result<()> {
        self.mounter.ensure_mounted(request, target)
    }

    fn ensure_bound_directory(
        &self,
        source: &TargetPath,
        target: &TargetPath,
        read_only: bool,
    ) -> Result<()> {
        self.mounter.ensure_bound_directory(source, target, read_only)
    }

    fn ensure_bound_device(&self, device: &Device, target: &TargetPath) -> Result<()> {
        self.mounter.ensure_bound_device(device, target)
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
            .map_err(cannot(&format!("give {root} to group {group}")))
    }

    fn usage(&self, path: &TargetPath) -> Result<Usage> {
        let space =
            file::space(path.as_path()).map_err(cannot("read the space of a filesystem"))?;
        Ok(Usage {
            total_bytes: space.total,
            available_bytes: space.free,
            total_inodes: space.inodes,
            free_inodes: space.inodes_free,
            has_given_up: file::has_given_up(path.as_path())
                .map_err(cannot("check a filesystem for errors"))?,
        })
    }

    fn filesystem_errors(&self, device: &Device) -> Result<u64> {
        orlop_sys::filesystem::errors_on(&device.path)
            .map_err(cannot("count the errors of a filesystem"))
    }

    fn device_size(&self, device: &Device) -> Result<u64> {
        loopdev::size(&device.path).map_err(cannot("read the size of a device"))
    }

    fn sync_filesystem(&self, mount: &TargetPath) -> Result<()> {
        file::sync_filesystem(mount.as_path()).map_err(cannot("sync a filesystem"))
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
        loopdev::writes(device.major, device.minor).map_err(cannot("count the writes to a device"))
    }

    fn sync_device(&self, device: &Device) -> Result<()> {
        file::sync_device(&device.path).map_err(cannot("sync a device"))
    }

    fn check_limits_work(&self) -> Result<()> {
        self.limiter.check()
    }

    fn ensure_limits(&self, device: &Device, limits: &IoLimits) -> Result<()> {
        self.limiter.ensure(device, limits)
    }

    fn devices_without_pool(&self, id: &VolumeId) -> Result<Option<Vec<UnservedDevice>>> {
        let devices = unserved_devices::of_volume(id)?;
        // Only image pools are marked: a volume of one has no other devices than those.
        let is_known = !devices.is_empty() || self.pool_marks().is_marked(id.pool())?;
        Ok(is_known.then_some(devices))
    }

    fn try_detach_without_pool(&self, id: &VolumeId, device: &UnservedDevice) -> Result<()> {
        unserved_devices::try_detach(id, device)
    }

    fn node_record(&self, id: &VolumeId) -> Result<NodeRecord> {
        match self.records.read(id) {
            Err(Error::Damaged { what, reason }) => {
                // First: the doctor must not take what is in use for an orphan (decision 0031).
                self.pool_marks().ensure_unstamped(id.pool())?;
                let aside = self.records.set_aside(id)?;
                tracing::warn!(
                    volume = %id,
                    reason,
                    aside = %aside.display(),
                    "cannot read {what}; moved it aside, and asking the kernel what is in use"
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
