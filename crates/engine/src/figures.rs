//! Figures of pools and volumes, for metrics. Nothing here waits for a pool that hangs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{
    Device, DeviceAccess, DeviceIo, DurationCounts, Error, Host, IoLimits, ObjectName, PoolId,
    PoolSpace, Result, VolumeId,
};

use crate::engine::{Engine, PoolRef};

/// For all pools together.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// To one pool at once: of scrapes, and of people who look at the page.
const QUESTIONS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolState {
    /// In service.
    Up,
    /// Its storage, or its cluster, does not answer.
    Hung,
    /// Not usable until a person has looked at it: read-only, replaced, gone.
    Failed,
    /// Configured, but not there.
    Absent,
}

#[derive(Debug, Clone)]
pub struct PoolFigures {
    pub name: String,
    /// `None` while it is absent.
    pub id: Option<PoolId>,
    pub state: PoolState,
    /// Why it does not serve, or why nothing can be made on it now.
    pub trouble: Option<String>,
    pub space: Option<PoolSpace>,
    /// Nothing can be made on it now, as it is below its floor, or full.
    pub is_short: Option<bool>,
    /// `None`: to know would cost a question to a cluster for each of them.
    pub objects: Option<ObjectCounts>,
    pub attach_failures: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    pub normal_volumes: usize,
    pub abnormal_volumes: usize,
    /// Among the abnormal ones: staged here, and writes to them were lost.
    pub with_lost_writes: usize,
    pub snapshots: usize,
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

/// The volumes that are staged here.
#[derive(Debug, Clone, Default)]
pub struct StagedIo {
    /// In the order of ids.
    pub volumes: Vec<VolumeIo>,
    /// How many there are beside them.
    pub left_out: usize,
    /// Names of pools with staged volumes that have not answered: their volumes are missing.
    pub silent_pools: Vec<String>,
}

/// How many questions each pool is being asked. Those that a hung pool does not answer must not become more and more.
#[derive(Default)]
pub(crate) struct AskedPools(Mutex<BTreeMap<PoolId, usize>>);

impl AskedPools {
    fn all(&self) -> MutexGuard<'_, BTreeMap<PoolId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: enough are asked already.
    fn begin(self: &Arc<Self>, id: &PoolId) -> Option<Asking> {
        let mut all = self.all();
        let asked = all.entry(id.clone()).or_default();
        if *asked >= QUESTIONS {
            return None;
        }
        *asked += 1;
        Some(Asking { asked: Arc::clone(self), id: id.clone() })
    }
}

struct Asking {
    asked: Arc<AskedPools>,
    id: PoolId,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut all = self.asked.all();
        if let Some(asked) = all.get_mut(&self.id) {
            *asked = asked.saturating_sub(1);
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
        let mut answers = self.ask_all(|pool, host| ask_pool(pool, host.as_ref()));
        let served = self.pools().values().map(|pool| {
            let breaker = self.breakers().get(pool.id());
            let outcome = answers.remove(pool.id()).unwrap_or_else(|| Err(late(pool)));
            let (state, trouble, answer) = match outcome {
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
                trouble,
                space: answer.as_ref().and_then(|answer| answer.space),
                is_short: answer.as_ref().map(|answer| answer.shortage.is_some()),
                objects: answer.and_then(|answer| answer.objects),
                attach_failures: breaker.map_or(0, |breaker| breaker.attach_failures()),
            }
        });
        let absent = self.absent().iter().map(|absent| PoolFigures {
            name: absent.name.clone(),
            id: None,
            state: PoolState::Absent,
            trouble: Some(absent.refusal().to_string()),
            space: None,
            is_short: None,
            objects: None,
            attach_failures: 0,
        });
        served.chain(absent).collect()
    }

    /// Of volumes staged here, at most so many.
    pub fn volume_io(&self, max: usize) -> Result<StagedIo> {
        let mut staged = self.host().node_records()?;
        let left_out = staged.len().saturating_sub(max);
        staged.truncate(max);
        let staged = Arc::new(staged);
        let asked = Arc::clone(&staged);
        let found = self.ask_all(move |pool, host| Ok(io_on(pool, host.as_ref(), &asked)));
        let is_silent = |pool: &&PoolRef| {
            !matches!(found.get(pool.id()), Some(Ok(_)))
                && staged.iter().any(|id| id.pool() == pool.id())
        };
        let silent = self.pools().values().filter(is_silent);
        let silent_pools = silent.map(|pool| pool.name().to_owned()).collect();
        let mut volumes: Vec<VolumeIo> = found.into_values().flatten().flatten().collect();
        volumes.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(StagedIo { volumes, left_out, silent_pools })
    }

    /// How much of its pool each volume takes, in the order of ids and at most so many. Only of pools whose records
    /// are in memory: others would be asked for each volume.
    pub fn volume_usage(&self, most: usize) -> Vec<(VolumeId, u64)> {
        let found = self.ask_all(move |pool, _| usage_on(pool, most));
        let mut all: Vec<_> = found.into_values().flatten().flatten().collect();
        all.sort_unstable();
        all.truncate(most);
        all
    }

    /// For how long filesystems were frozen for copies.
    pub fn freeze_durations(&self) -> DurationCounts {
        self.freezes().counts()
    }

    /// A thread for each pool, so that those that answer do not wait for those that do not. A pool that is
    /// missing from the answer has not answered.
    pub(crate) fn ask_all<T: Send + 'static>(
        &self,
        question: impl Fn(&PoolRef, &Arc<dyn Host>) -> Result<T> + Clone + Send + 'static,
    ) -> BTreeMap<PoolId, Result<T>> {
        let (answer, answers) = mpsc::channel();
        let mut waiting = 0;
        for pool in self.pools().values() {
            let Some(asking) = self.asked_pools().begin(pool.id()) else { continue };
            let (engine, pool, answer) = (self.clone(), Arc::clone(pool), answer.clone());
            let question = question.clone();
            let host = Arc::clone(self.host());
            let ask = move || {
                let asked = engine.query(&pool, move |pool| question(pool, &host));
                let id = asking.id.clone();
                // First, as the next question may follow the answer at once.
                drop(asking);
                // The caller may have given up.
                let _ = answer.send((id, asked.and_then(|answer| answer)));
            };
            match thread::Builder::new().name("pool-figures".to_owned()).spawn(ask) {
                Ok(_) => waiting += 1,
                Err(error) => tracing::debug!(%error, "cannot start a thread to ask a pool"),
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

pub(crate) fn late(pool: &PoolRef) -> Error {
    Error::unreachable(format!("ask pool {}", pool.name()), "it has not answered in time")
}

fn ask_pool(pool: &PoolRef, host: &dyn Host) -> Result<PoolAnswer> {
    pool.health().check()?;
    let shortage = pool.health().shortage()?;
    let objects = match pool.catalogue().is_in_memory() {
        true => Some(count_objects(pool, host)?),
        false => None,
    };
    Ok(PoolAnswer { space: Some(pool.provisioner().space()?), shortage, objects })
}

fn count_objects(pool: &PoolRef, host: &dyn Host) -> Result<ObjectCounts> {
    let volumes = pool.catalogue().volumes(None, 0)?;
    let ids: Vec<VolumeId> = volumes.into_iter().map(|(id, _)| id).collect();
    let mut counts = ObjectCounts {
        snapshots: pool.catalogue().snapshots(None, 0)?.len(),
        ..Default::default()
    };
    for (id, condition) in ids.iter().zip(pool.health().conditions(&ids)) {
        let is_abnormal = match condition {
            // Deleted since it was listed.
            Err(Error::NoSuchVolume(_)) => continue,
            Err(_) => true,
            Ok(condition) => condition.is_abnormal(),
        };
        let has_lost_writes = host.lost_writes(id).is_some();
        counts.with_lost_writes += usize::from(has_lost_writes);
        match is_abnormal || has_lost_writes {
            true => counts.abnormal_volumes += 1,
            false => counts.normal_volumes += 1,
        }
    }
    Ok(counts)
}

/// A volume that is being detached is left out.
fn io_on(pool: &PoolRef, host: &dyn Host, staged: &[VolumeId]) -> Vec<VolumeIo> {
    let here = staged.iter().filter(|id| id.pool() == pool.id());
    let io_of = |id: &VolumeId| {
        let record = pool.catalogue().volume(id).ok().flatten()?;
        let io = host.device_io(&device_of(pool, id)?).ok()?;
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

/// A volume that is deleted in this moment is left out.
fn usage_on(pool: &PoolRef, most: usize) -> Result<Vec<(VolumeId, u64)>> {
    if !pool.catalogue().is_in_memory() {
        return Ok(Vec::new());
    }
    let volumes = pool.catalogue().volumes(None, most)?;
    let used = |(id, _)| pool.provisioner().used_bytes(&id).ok().map(|bytes| (id, bytes));
    Ok(volumes.into_iter().filter_map(used).collect())
}

fn device_of(pool: &PoolRef, id: &VolumeId) -> Option<Device> {
    let attached = |access| pool.devices().attached(id, access).ok().flatten();
    attached(DeviceAccess::ReadWrite).or_else(|| attached(DeviceAccess::ReadOnly))
}
