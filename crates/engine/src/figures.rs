//! Figures of pools and volumes, for metrics, the page and the monitor. Nothing here waits for a pool that hangs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{
    Device, DeviceAccess, DeviceIo, DurationCounts, Error, HealthReason, Host, IoLimits,
    ObjectName, PoolId, PoolSpace, Problem, Result, SnapshotId, SnapshotRecord, VolumeId,
    VolumeRecord,
};

use crate::engine::{Engine, PoolRef};
use crate::lost_writes::with_lost_writes;
use crate::staged_watch::StagedWatch;

/// For all pools together.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Running at once on one pool: for scrapes of metrics, and for the page.
const MAX_QUERIES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolState {
    /// In service.
    Up,
    /// Its storage, or its cluster, does not answer.
    Hung,
    /// Cannot be used until a person has repaired it: read-only, replaced, or gone.
    Failed,
    /// Configured, but its disk or cluster is missing.
    Absent,
}

impl PoolState {
    pub const ALL: [Self; 4] = [Self::Up, Self::Hung, Self::Failed, Self::Absent];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Hung => "hung",
            Self::Failed => "failed",
            Self::Absent => "absent",
        }
    }
}

#[derive(Debug, Clone)]
pub struct PoolFigures {
    pub name: String,
    /// `None` while it is absent.
    pub id: Option<PoolId>,
    pub state: PoolState,
    /// Why it does not serve, or why nothing can be created on it now.
    pub problem: Option<String>,
    pub space: Option<PoolSpace>,
    /// Nothing can be created on it now: it is below its floor, or the Ceph pool is full. `None`: not known.
    pub is_below_floor: Option<bool>,
    /// `None`: counting would take a request to the cluster for each object.
    pub objects: Option<ObjectCounts>,
    pub attach_failures: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    pub normal_volumes: usize,
    pub abnormal_volumes: usize,
    /// How many of the abnormal ones have each problem; with those that only a node sees, such as
    /// lost writes, only volumes that are staged here.
    pub volumes_by_reason: BTreeMap<HealthReason, usize>,
    pub normal_snapshots: usize,
    pub abnormal_snapshots: usize,
}

impl ObjectCounts {
    pub fn volumes_with(&self, reason: HealthReason) -> usize {
        self.volumes_by_reason.get(&reason).copied().unwrap_or(0)
    }
}

/// A volume that is staged here, and what its device has done.
#[derive(Debug, Clone)]
pub struct VolumeIo {
    pub id: VolumeId,
    pub name: ObjectName,
    pub pool: String,
    pub io: DeviceIo,
    pub limits: IoLimits,
}

/// A volume, and what it takes of its pool.
#[derive(Debug, Clone)]
pub struct VolumeUsage {
    pub id: VolumeId,
    pub name: ObjectName,
    /// Blocks that it has, also those that it shares with copies.
    pub used_bytes: u64,
    pub limits: IoLimits,
}

/// The volumes that are staged here.
#[derive(Debug, Clone, Default)]
pub struct StagedIo {
    /// In the order of ids.
    pub volumes: Vec<VolumeIo>,
    /// How many further volumes are staged here.
    pub left_out: usize,
    /// Names of pools that have not answered in time: their staged volumes are not in `volumes`.
    pub missing_pools: Vec<String>,
}

/// How many queries run on each pool. The limit keeps those that hang with their pool from piling up.
#[derive(Default)]
pub(crate) struct RunningQueries(Mutex<BTreeMap<PoolId, usize>>);

impl RunningQueries {
    fn all(&self) -> MutexGuard<'_, BTreeMap<PoolId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the limit is reached.
    fn begin(self: &Arc<Self>, id: &PoolId) -> Option<RunningQuery> {
        let mut all = self.all();
        let running = all.entry(id.clone()).or_default();
        if *running >= MAX_QUERIES {
            return None;
        }
        *running += 1;
        Some(RunningQuery { queries: Arc::clone(self), id: id.clone() })
    }
}

struct RunningQuery {
    queries: Arc<RunningQueries>,
    id: PoolId,
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        let mut all = self.queries.all();
        if let Some(running) = all.get_mut(&self.id) {
            *running = running.saturating_sub(1);
        }
    }
}

struct PoolAnswer {
    space: Option<PoolSpace>,
    shortage: Option<String>,
    objects: Option<ObjectCounts>,
}

impl Engine {
    /// All pools, those in service first. Takes a few seconds at most.
    pub fn pool_figures(&self) -> Vec<PoolFigures> {
        let mut answers = {
            let watch = Arc::clone(self.staged_watch());
            self.query_pools(move |pool, host| read_figures(pool, host.as_ref(), &watch))
        };
        let served = self.pools().values().map(|pool| {
            let breaker = self.breakers().get(pool.id());
            let outcome = answers.remove(pool.id()).unwrap_or_else(|| Err(not_answered(pool)));
            let (state, problem, answer) = match outcome {
                Ok(answer) => (PoolState::Up, answer.shortage.clone(), Some(answer)),
                Err(why @ Error::Unreachable { .. }) => {
                    (PoolState::Hung, Some(why.to_string()), None)
                }
                Err(why) => (PoolState::Failed, Some(why.to_string()), None),
            };
            PoolFigures {
                name: pool.name().to_owned(),
                id: Some(pool.id().clone()),
                state,
                problem,
                space: answer.as_ref().and_then(|answer| answer.space),
                is_below_floor: answer.as_ref().map(|answer| answer.shortage.is_some()),
                objects: answer.and_then(|answer| answer.objects),
                attach_failures: breaker.map_or(0, |breaker| breaker.attach_failures()),
            }
        });
        let absent = self.absent().iter().map(|absent| PoolFigures {
            name: absent.name.clone(),
            id: None,
            state: PoolState::Absent,
            problem: Some(absent.refusal().to_string()),
            space: None,
            is_below_floor: None,
            objects: None,
            attach_failures: 0,
        });
        served.chain(absent).collect()
    }

    /// The I/O of volumes staged here: the first `max` in the order of ids.
    pub fn volume_io(&self, max: usize) -> Result<StagedIo> {
        let mut staged = self.host().node_records()?;
        let left_out = staged.len().saturating_sub(max);
        staged.truncate(max);
        let staged = Arc::new(staged);
        let ids = Arc::clone(&staged);
        let found = self.query_pools(move |pool, host| Ok(io_on(pool, host.as_ref(), &ids)));
        let is_missing = |pool: &&PoolRef| {
            !matches!(found.get(pool.id()), Some(Ok(_)))
                && staged.iter().any(|id| id.pool() == pool.id())
        };
        let missing = self.pools().values().filter(is_missing);
        let missing_pools = missing.map(|pool| pool.name().to_owned()).collect();
        let mut volumes: Vec<VolumeIo> = found.into_values().flatten().flatten().collect();
        volumes.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(StagedIo { volumes, left_out, missing_pools })
    }

    /// Names and limits of volumes, and how much of its pool each takes: the first `max` in the order of ids, and only of
    /// pools whose records are in memory. A cluster would have to be asked for each volume.
    pub fn volume_usage(&self, max: usize) -> Vec<VolumeUsage> {
        let found = self.query_pools(move |pool, _| usage_on(pool, max));
        let mut all: Vec<_> = found.into_values().flatten().flatten().collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all.truncate(max);
        all
    }

    /// Snapshots, with the same limits as [`Engine::volume_usage`].
    pub fn snapshots_in_memory(&self, max: usize) -> Vec<SnapshotRecord> {
        let pools = self.pools().values().filter(|pool| pool.catalogue().is_in_memory());
        let records = pools.flat_map(|pool| pool.catalogue().snapshots(None, max));
        let mut all: Vec<SnapshotRecord> = records.flatten().collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all.truncate(max);
        all
    }

    /// For how long filesystems were frozen for copies.
    pub fn freeze_durations(&self) -> DurationCounts {
        self.freezes().counts()
    }

    /// Queries all pools at once, each on a thread, so that no pool waits for one that hangs. A pool that is missing from
    /// the map has not answered in time.
    pub(crate) fn query_pools<T: Send + 'static>(
        &self,
        query: impl Fn(&PoolRef, &Arc<dyn Host>) -> Result<T> + Clone + Send + 'static,
    ) -> BTreeMap<PoolId, Result<T>> {
        let (answer, answers) = mpsc::channel();
        let mut waiting = 0;
        for pool in self.pools().values() {
            let Some(running) = self.running_queries().begin(pool.id()) else { continue };
            let (engine, pool, answer) = (self.clone(), Arc::clone(pool), answer.clone());
            let query = query.clone();
            let host = Arc::clone(self.host());
            let run = move || {
                let outcome = engine.query(&pool, move |pool| query(pool, &host));
                let id = running.id.clone();
                // Before the answer is sent, because the next query may follow at once.
                drop(running);
                // The caller may have given up.
                let _ = answer.send((id, outcome.and_then(|answer| answer)));
            };
            match thread::Builder::new().name("pool-figures".to_owned()).spawn(run) {
                Ok(_) => waiting += 1,
                Err(error) => tracing::debug!(%error, "cannot start a thread to query a pool"),
            }
        }
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut found = BTreeMap::new();
        while found.len() < waiting {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((id, answer)) = answers.recv_timeout(left) else { break };
            found.insert(id, answer);
        }
        found
    }
}

pub(crate) fn not_answered(pool: &PoolRef) -> Error {
    Error::unreachable(format!("query pool {}", pool.name()), "it has not answered in time")
}

fn read_figures(pool: &PoolRef, host: &dyn Host, watch: &StagedWatch) -> Result<PoolAnswer> {
    pool.health().check()?;
    let shortage = pool.health().shortage()?;
    let objects = match pool.catalogue().is_in_memory() {
        true => Some(count_objects(pool, host, watch)?),
        false => None,
    };
    Ok(PoolAnswer { space: Some(pool.provisioner().space()?), shortage, objects })
}

fn count_objects(pool: &PoolRef, host: &dyn Host, watch: &StagedWatch) -> Result<ObjectCounts> {
    let volumes = pool.catalogue().volumes(None, 0)?;
    let ids: Vec<VolumeId> = volumes.into_iter().map(|(id, _)| id).collect();
    let mut counts = ObjectCounts::default();
    for (id, condition) in ids.iter().zip(pool.health().conditions(&ids)) {
        let problems = match condition {
            // Deleted since it was listed.
            Err(Error::NoSuchVolume(_)) => continue,
            Err(error) => vec![Problem::of(&error)],
            Ok(condition) => {
                watch.with_problems(id, with_lost_writes(host, id, condition)).into_problems()
            }
        };
        match problems.is_empty() {
            true => counts.normal_volumes += 1,
            false => counts.abnormal_volumes += 1,
        }
        for problem in problems {
            *counts.volumes_by_reason.entry(problem.reason).or_default() += 1;
        }
    }
    let abnormal: BTreeSet<SnapshotId> =
        pool.health().abnormal_snapshots()?.into_iter().map(|(id, _)| id).collect();
    let snapshots = pool.catalogue().snapshots(None, 0)?;
    counts.normal_snapshots = snapshots.iter().filter(|it| !abnormal.contains(&it.id)).count();
    counts.abnormal_snapshots = abnormal.len();
    Ok(counts)
}

/// A volume that is being detached is left out.
fn io_on(pool: &PoolRef, host: &dyn Host, staged: &[VolumeId]) -> Vec<VolumeIo> {
    let here = staged.iter().filter(|id| id.pool() == pool.id());
    let io_of = |id: &VolumeId| {
        let record = pool.catalogue().volume(id).ok().flatten()?;
        let io = host.device_io(&device_of(pool, host, id)?).ok()?;
        Some(VolumeIo {
            id: id.clone(),
            name: record.name,
            pool: pool.name().to_owned(),
            io,
            limits: record.limits,
        })
    };
    here.filter_map(io_of).collect()
}

/// A volume that is deleted after it was listed is left out.
fn usage_on(pool: &PoolRef, max: usize) -> Result<Vec<VolumeUsage>> {
    if !pool.catalogue().is_in_memory() {
        return Ok(Vec::new());
    }
    let volumes = pool.catalogue().volumes(None, max)?;
    let ids: Vec<VolumeId> = volumes.iter().map(|(id, _)| id.clone()).collect();
    let used = pool.provisioner().used_bytes_of(&ids);
    let usage = |((id, record), used_bytes): ((VolumeId, Result<VolumeRecord>), Result<u64>)| {
        let VolumeRecord { name, limits, .. } = record.ok()?;
        Some(VolumeUsage { id, name, used_bytes: used_bytes.ok()?, limits })
    };
    Ok(volumes.into_iter().zip(used).filter_map(usage).collect())
}

/// What workloads use of it.
fn device_of(pool: &PoolRef, host: &dyn Host, id: &VolumeId) -> Option<Device> {
    let attached = |access| {
        let device = pool.devices().attached(id, access).ok().flatten()?;
        Some(host.mapping_on(id, access, &device).ok()?.unwrap_or(device))
    };
    attached(DeviceAccess::ReadWrite).or_else(|| attached(DeviceAccess::ReadOnly))
}
