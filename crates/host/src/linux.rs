//! Linux. The kernel is asked what is mounted where; files under the run directory, which a
//! reboot clears together with the mounts, hold only what the kernel does not know.
//!
//! Each part of [`orlop_model::Host`] is in the file that does it: `filesystem.rs`, `mounting.rs`,
//! `devices.rs`, `encryption.rs`, `freezer.rs`, `limits.rs`, `run_files.rs`.

mod devices;
mod encryption;
mod failure;
mod filesystem;
mod freezer;
mod fs_tools;
mod io_before;
mod limits;
mod lost_writes;
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

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_model::{FsType, PoolId, Result};
use orlop_sys::thaw_helper::HelperCommand;

use encryption::Encryption;
pub use encryption::{EncryptionConfig, KeyFiles};
use freezer::Freezer;
pub use freezer::ThawsUnderWay;
use fs_tools::FsTools;
use io_before::IoBefore;
use limits::Limiter;
use lost_writes::LostWrites;
pub use machine_scan::{MachineScan, VolumeExistence};
use mounting::ProtectedPaths;
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
    pub encryption: EncryptionConfig,
}

pub struct LinuxHost {
    fs_tools: FsTools,
    run_dir: RunDirectory,
    records: NodeRecords,
    lost_writes: LostWrites,
    io_before: IoBefore,
    freezer: Freezer,
    limiter: Limiter,
    encryption: Encryption,
    protected_paths: ProtectedPaths,
    lock: Option<RunDirectoryLock>,
}

impl LinuxHost {
    pub fn new(config: LinuxHostConfig) -> Result<Self> {
        let run_dir = RunDirectory::ensure(&config.run_dir)?;
        let lock = config.alone.then(|| run_dir.take()).transpose()?;
        let mut protected_paths = config.protected_paths;
        protected_paths.push(config.run_dir);
        let records = NodeRecords::new(run_dir.volumes());
        Ok(Self {
            protected_paths: ProtectedPaths::new(protected_paths, run_dir.inline()),
            fs_tools: FsTools::choose(config.filesystems, config.default_fs)?,
            lost_writes: LostWrites::load(run_dir.lost_writes(), &records)?,
            io_before: IoBefore::new(run_dir.io_before()),
            records,
            freezer: Freezer::new(run_dir.frozen(), config.freeze_limit, config.thaw_helper),
            encryption: Encryption::new(config.encryption),
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

    pub fn run_dir(&self) -> &Path {
        self.run_dir.path()
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

    /// Does this run directory have the records of all that is used of the pool? By the stamp that the pool
    /// has. Makes nothing.
    pub fn is_run_dir_of(run_dir: &Path, pool: &PoolId, stamp: &str) -> Result<bool> {
        PoolMarks::new(RunDirectory::at(run_dir)?.pools()).is_stamped(pool, stamp)
    }

    fn pool_marks(&self) -> PoolMarks {
        PoolMarks::new(self.run_dir.pools())
    }
}
