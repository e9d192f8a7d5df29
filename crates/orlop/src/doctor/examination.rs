//! The examination itself: of every pool, then of the machine.

mod pool;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_host::{MachineScan, VolumeExistence};
use orlop_model::{Finding, PoolId, Result, VolumeId};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::run_directory::RunDirectory;
use crate::config::{Config, Sockets};
use crate::inspection::Inspection;
use pool::{PoolExamination, SECOND_SCAN_AFTER, lasting, start_examining};

/// Far more than it takes on a disk that answers.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(30);
const NO_ANSWER: &str =
    "it did not answer within 30 seconds; its disk, or its Ceph cluster, is slow or hangs";

/// The pools and the run directories stay locked as long as this lives.
#[derive(Default)]
pub(crate) struct Examination {
    pub(crate) pools: Vec<ExaminedPool>,
    pub(crate) findings: Vec<Found>,
    /// What could not be examined, and why.
    pub(crate) not_examined: Vec<String>,
    /// How many configured pools have an unknown id, also of those that are left out.
    without_id: usize,
    /// The ids of the pools that were examined.
    ids: Vec<PoolId>,
    /// What is as it was asked for, and may not be what was meant.
    pub(crate) warnings: Vec<String>,
    pub(crate) machine: Vec<ExaminedRunDirectory>,
}

pub(crate) struct ExaminedPool {
    pub(crate) name: String,
    pub(crate) at: String,
    pub(crate) id: Option<PoolId>,
    /// Could all of it be examined?
    pub(crate) is_examined: bool,
    /// Of a pool on disks of this machine.
    pub(crate) inspection: Option<Inspection>,
    /// The same.
    pub(crate) run_dir: Option<RunDirectory>,
}

pub(crate) struct Found {
    /// The name of the pool that it is about; `None`: the machine.
    pub(crate) pool: Option<String>,
    pub(crate) finding: Finding,
}

/// A run directory whose records were compared with what is there.
pub(crate) struct ExaminedRunDirectory {
    pub(crate) path: PathBuf,
    scan: MachineScan,
    /// The one that the settings name.
    is_configured: bool,
    /// The ids of the pools whose run directory it is.
    pools: Vec<PoolId>,
    /// Are all volumes with a record in it of pools that are configured?
    has_all_pools: bool,
}

impl Found {
    fn in_pool(name: &str, finding: Finding) -> Self {
        Self { pool: Some(name.to_owned()), finding }
    }
}

impl Examination {
    /// `on_pool` is called with each pool as soon as it was examined. `left_out`: so many pools are configured beside
    /// those in `config`, and volumes of theirs may be in use here.
    pub(crate) fn of(
        config: &Config,
        left_out: usize,
        sockets: Option<&Sockets>,
        mut on_pool: impl FnMut(&ExaminedPool),
    ) -> Self {
        let deadline = Instant::now() + INSPECTION_TIMEOUT;
        let receivers: Vec<_> =
            config.pools.iter().map(|pool| start_examining(pool, &config.node_id)).collect();
        let mut examination = Self { without_id: left_out, ..Self::default() };
        for (pool, receiver) in config.pools.iter().zip(receivers) {
            let left = deadline.saturating_duration_since(Instant::now());
            let examined = match receiver.map(|receiver| receiver.recv_timeout(left)) {
                Ok(Ok(examined)) => examined,
                Ok(Err(_)) => PoolExamination::failed(pool, NO_ANSWER),
                Err(error) => PoolExamination::failed(pool, error),
            };
            examined.pool.iter().for_each(&mut on_pool);
            examination.add(pool.name(), examined);
        }
        examination.compare_ids();
        examination.find_run_directories(config);
        let is_answered = sockets.is_some_and(|sockets| answers(&sockets.csi));
        for directory in examination.run_directories(config) {
            match examination.examine_machine(&directory, is_answered) {
                Ok(()) => examination.machine.push(directory),
                Err(error) => examination.not_examined.push(format!("this machine: {error}")),
            }
        }
        examination
    }

    fn add(&mut self, name: &str, examined: PoolExamination) {
        match examined.id {
            Some(id) => self.ids.push(id),
            None => self.without_id += 1,
        }
        self.pools.extend(examined.pool);
        self.findings
            .extend(examined.findings.into_iter().map(|finding| Found::in_pool(name, finding)));
        self.warnings.extend(examined.warning);
        self.not_examined.extend(examined.not_examined);
    }

    pub(crate) fn inspections(&self) -> impl Iterator<Item = &Inspection> {
        self.pools.iter().filter_map(|pool| pool.inspection.as_ref())
    }

    /// A pool that was copied has its original's id, and so have all volumes in it.
    fn compare_ids(&mut self) {
        let mut seen: Vec<(&str, &Inspection)> = Vec::new();
        let mut findings = Vec::new();
        for pool in &self.pools {
            let Some(inspection) = &pool.inspection else { continue };
            if let Some((other, _)) = seen.iter().find(|(_, it)| it.id == inspection.id) {
                let finding = Finding::by_hand(
                    "same-id",
                    format!("pool {}", pool.name),
                    format!("it has the id {} of pool {other}: one is a copy", inspection.id),
                    "serve only one of them",
                );
                findings.push(Found::in_pool(&pool.name, finding));
            }
            seen.push((&pool.name, inspection));
        }
        self.findings.extend(findings);
    }

    fn find_run_directories(&mut self, config: &Config) {
        for pool in &mut self.pools {
            let Some(inspection) = &pool.inspection else { continue };
            let owner = inspection.last_owner.as_ref();
            pool.run_dir = Some(RunDirectory::of_pool(config, &inspection.id, owner));
        }
    }

    /// The one that the settings name, and those of pools that are elsewhere.
    fn run_directories(&mut self, config: &Config) -> Vec<ExaminedRunDirectory> {
        let configured = config.run_dir.join(&config.driver_name);
        let mut paths = vec![configured.clone()];
        for found in self.pools.iter().filter_map(|pool| pool.run_dir.as_ref()?.path()) {
            if !paths.iter().any(|path| path == found) {
                paths.push(found.to_owned());
            }
        }
        let mut examined = Vec::new();
        for path in paths {
            let is_configured = path == configured;
            let pools = self.pools_with(&path, is_configured);
            // With the settings of another daemon, its pools are none of those that are configured.
            let has_all_pools =
                is_configured && (!pools.is_empty() || self.is_any_without_run_dir());
            // Nothing was ever served with it.
            if !has_all_pools && !path.exists() {
                continue;
            }
            match MachineScan::of(&path, &config.workload_cgroup) {
                Ok(scan) => {
                    examined.push(ExaminedRunDirectory {
                        path,
                        scan,
                        is_configured,
                        pools,
                        has_all_pools,
                    });
                }
                Err(error) => self.not_examined.push(format!("this machine: {error}")),
            }
        }
        examined
    }

    /// The pools that are examined with this run directory. A pool whose run directory is not known is examined with
    /// the configured one.
    fn pools_with(&self, path: &Path, is_configured: bool) -> Vec<PoolId> {
        let is_examined_here = |run_dir: &RunDirectory| match run_dir {
            RunDirectory::Of(found) => found == path,
            RunDirectory::NotFound(_) | RunDirectory::Several(_) => is_configured,
        };
        let here =
            self.pools.iter().filter(|pool| pool.run_dir.as_ref().is_some_and(is_examined_here));
        here.filter_map(|pool| Some(pool.inspection.as_ref()?.id.clone())).collect()
    }

    /// Of a pool on Ceph, or one that could not be examined, it is not known.
    fn is_any_without_run_dir(&self) -> bool {
        self.without_id > 0 || self.pools.iter().any(|pool| pool.run_dir.is_none())
    }

    fn examine_machine(
        &mut self,
        directory: &ExaminedRunDirectory,
        is_answered: bool,
    ) -> Result<()> {
        let in_use = is_answered
            || directory.scan.is_served()
            || self.inspections().any(|it| it.in_use && directory.pools.contains(&it.id));
        let mut findings = self.scan(directory, in_use)?;
        if in_use && !findings.is_empty() {
            std::thread::sleep(SECOND_SCAN_AFTER);
            findings = lasting(findings, &self.scan(directory, in_use)?);
        }
        let found: Vec<_> = findings.into_iter().map(|it| self.attributed(it)).collect();
        self.findings.extend(found);
        Ok(())
    }

    /// To the pool of the volume that it is about.
    fn attributed(&self, finding: Finding) -> Found {
        let volume =
            finding.subject.strip_prefix("volume ").and_then(|id| id.parse::<VolumeId>().ok());
        let is_its = |pool: &&ExaminedPool| {
            let id = pool.inspection.as_ref().map(|inspection| &inspection.id);
            volume.as_ref().is_some_and(|volume| Some(volume.pool()) == id)
        };
        let pool = self.pools.iter().find(is_its).map(|pool| pool.name.clone());
        Found { pool, finding }
    }

    fn scan(&self, directory: &ExaminedRunDirectory, in_use: bool) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for pool in &self.pools {
            let (Some(inspection), Some(run_dir)) = (&pool.inspection, &pool.run_dir) else {
                continue;
            };
            if directory.pools.contains(&inspection.id) {
                let advice = run_dir.advice();
                findings.extend(directory.scan.devices(&inspection.devices, advice.as_deref())?);
            }
        }
        let existence = |id: &VolumeId| {
            let existence = self.existence(id);
            let is_of_others =
                existence == VolumeExistence::PoolNotConfigured && !directory.has_all_pools;
            if is_of_others { VolumeExistence::Unknown } else { existence }
        };
        findings.extend(directory.scan.node_records(existence)?);
        // The daemon of another one may limit another cgroup, and have another pool on Ceph.
        if directory.is_configured {
            let lists_devices = |id: &VolumeId| self.inspections().any(|it| it.id == *id.pool());
            let is_ours = |id: &VolumeId| self.ids.contains(id.pool()) && !lists_devices(id);
            findings.extend(directory.scan.mappings(is_ours)?);
            findings.extend(directory.scan.limits()?);
        }
        if !in_use {
            findings.extend(directory.scan.frozen()?);
        }
        Ok(findings)
    }

    fn existence(&self, id: &VolumeId) -> VolumeExistence {
        let pool = self.inspections().find(|inspection| inspection.id == *id.pool());
        match pool.map(|inspection| inspection.holds_volume(id)) {
            Some(Ok(true)) => VolumeExistence::Exists,
            Some(Ok(false)) => VolumeExistence::Gone,
            Some(Err(_)) => VolumeExistence::Unknown,
            None if self.without_id > 0 || self.ids.contains(id.pool()) => VolumeExistence::Unknown,
            None => VolumeExistence::PoolNotConfigured,
        }
    }
}

/// Does not wait: a daemon that is stopped takes no connection once its backlog is full.
fn answers(socket: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(address) = SocketAddrUnix::new(socket) else { return false };
    let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    match made.and_then(|connecting| connect(&connecting, &address)) {
        Ok(()) | Err(Errno::AGAIN) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
