//! Figures of pools and volumes, for metrics. Nothing here waits for a pool that hangs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{
    Device, DeviceAccess, DeviceIo, DurationCounts, Error, Host, ObjectName, PoolId, PoolSpace,
    Result, VolumeId,
};

use crate::engine::{Engine, PoolRef};

/// For all pools together.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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
}

/// Pools that are being asked: a second question would wait behind the first.
#[derive(Default)]
pub(crate) struct AskedPools(Mutex<BTreeSet<PoolId>>);

impl AskedPools {
    fn all(&self) -> MutexGuard<'_, BTreeSet<PoolId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Asking {
    asked: Arc<AskedPools>,
    id: PoolId,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.asked.all().remove(&self.id);
    }
}

struct Look {
    space: Option<PoolSpace>,
    is_short: bool,
    objects: Option<ObjectCounts>,
}

impl Engine {
    /// All pools, those in service first. Takes a few seconds at most.
    pub fn pool_figures(&self) -> Vec<PoolFigures> {
        let mut looks = self.ask_all(|pool, host| look(pool, host.as_ref()));
        let served = self.pools().values().map(|pool| {
            let failures = self.breakers().get(pool.id()).map(|breaker| &breaker.attach_failures);
            let outcome = looks.remove(pool.id()).unwrap_or_else(|| Err(late(pool)));
            let (state, look) = match outcome {
                Ok(look) => (PoolState::Up, Some(look)),
                Err(Error::Unreachable { .. }) => (PoolState::Hung, None),
                Err(_) => (PoolState::Failed, None),
            };
            PoolFigures {
                name: pool.name().to_owned(),
                id: Some(pool.id().clone()),
                state,
                space: look.as_ref().and_then(|look| look.space),
                is_short: look.as_ref().map(|look| look.is_short),
                objects: look.and_then(|look| look.objects),
                attach_failures: failures.map_or(0, |count| count.load(Ordering::Relaxed)),
            }
        });
        let absent = self.absent().iter().map(|absent| PoolFigures {
            name: absent.name.clone(),
            id: None,
            state: PoolState::Absent,
            space: None,
            is_short: None,
            objects: None,
            attach_failures: 0,
        });
        served.chain(absent).collect()
    }

    /// Of volumes staged here, in the order of ids and at most so many; and how many there are beside them.
    pub fn volume_io(&self, most: usize) -> Result<(Vec<VolumeIo>, usize)> {
        let mut staged = self.host().node_records()?;
        let left_out = staged.len().saturating_sub(most);
        staged.truncate(most);
        let staged = Arc::new(staged);
        let found = self.ask_all(move |pool, host| Ok(io_on(pool, host.as_ref(), &staged)));
        let mut all: Vec<VolumeIo> = found.into_values().flatten().flatten().collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        Ok((all, left_out))
    }

    /// For how long filesystems were frozen for copies.
    pub fn freeze_durations(&self) -> DurationCounts {
        self.freezes().counts()
    }

    /// A thread for each pool, so that those that answer do not wait for those that do not. A pool that is
    /// missing from the answer has not answered.
    fn ask_all<T: Send + 'static>(
        &self,
        question: impl Fn(&PoolRef, &Arc<dyn Host>) -> Result<T> + Clone + Send + 'static,
    ) -> BTreeMap<PoolId, Result<T>> {
        let (answer, answers) = mpsc::channel();
        let mut waiting = 0;
        for pool in self.pools().values() {
            let id = pool.id().clone();
            if !self.asked_pools().all().insert(id.clone()) {
                continue;
            }
            let asking = Asking { asked: Arc::clone(&self.asked_pools()), id };
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

fn late(pool: &PoolRef) -> Error {
    Error::unreachable(format!("ask pool {}", pool.name()), "it has not answered in time")
}

fn look(pool: &PoolRef, host: &dyn Host) -> Result<Look> {
    pool.health().check()?;
    let is_short = pool.health().shortage()?.is_some();
    let objects = match pool.catalogue().is_in_memory() {
        true => Some(count_objects(pool, host)?),
        false => None,
    };
    Ok(Look { space: Some(pool.provisioner().space()?), is_short, objects })
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
        Some(VolumeIo { id: id.clone(), name: record.name, pool: pool.name().to_owned(), io })
    };
    here.filter_map(io_of).collect()
}

fn device_of(pool: &PoolRef, id: &VolumeId) -> Option<Device> {
    let attached = |access| pool.devices().attached(id, access).ok().flatten();
    attached(DeviceAccess::ReadWrite).or_else(|| attached(DeviceAccess::ReadOnly))
}
