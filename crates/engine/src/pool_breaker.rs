//! A circuit breaker for each pool: does its storage answer?
//!
//! A call to a pool whose disk hangs waits in the kernel and cannot be interrupted, so no further calls must follow
//! it. A separate thread probes the pool with a small write when calls on it take long, and at intervals when there
//! are none; while a probe does not return, calls are refused. A pool that notices this itself, such as a shared one,
//! has no probe and is not watched here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Device, DeviceAccess, Error, PoolId, Result, StorageProbe, VolumeId};

use crate::engine::{Engine, PoolRef};
use crate::query_threads::QueryThreads;

/// A call that runs for this long is a reason to probe its pool.
const SLOW_CALL: Duration = Duration::from_secs(5);
/// How often a pool is probed on which no call takes long: the first call after a quiet night must not be the
/// one that finds it hung. A Ceph cluster is probed as often.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// How long a probe may take. A disk that is busy with other copies may well take seconds for one write.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a call waits for a query that changes nothing, and for the permit to make it.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// How many queries may run at once on one pool.
const MAX_QUERIES: usize = 16;
/// How many foreign calls may use a pool at once.
const MAX_FOREIGN_CALLS: usize = 16;

pub(crate) struct PoolBreaker {
    pool: PoolRef,
    state: Mutex<BreakerState>,
    left: Condvar,
    query_threads: QueryThreads,
    attach_failures: AtomicU64,
}

struct BreakerState {
    /// Start times of the running calls, by number, oldest first.
    in_flight: BTreeMap<u64, Instant>,
    begun: u64,
    /// When the running probe was started.
    probe_began: Option<Instant>,
    last_answer: Instant,
    is_hung: bool,
    queries: usize,
    foreign_calls: usize,
    /// Whose request limits the foreign calls count against, where it is a pool's.
    home_pools: Vec<PoolId>,
}

impl BreakerState {
    fn is_slow(&self) -> bool {
        let oldest = self.in_flight.values().next();
        let is_slow = oldest.is_some_and(|since| since.elapsed() >= SLOW_CALL);
        is_slow && self.last_answer.elapsed() >= SLOW_CALL
    }
}

/// A call that the pool has not finished.
pub struct PoolCall {
    breaker: Arc<PoolBreaker>,
    number: u64,
}

impl Drop for PoolCall {
    fn drop(&mut self) {
        self.breaker.state().in_flight.remove(&self.number);
    }
}

/// One of [`MAX_FOREIGN_CALLS`] or of [`MAX_QUERIES`].
pub(crate) struct BreakerPermit {
    breaker: Arc<PoolBreaker>,
    of: fn(&mut BreakerState) -> &mut usize,
    home: Option<PoolId>,
    _call: PoolCall,
}

impl Drop for BreakerPermit {
    fn drop(&mut self) {
        let mut state = self.breaker.state();
        *(self.of)(&mut state) -= 1;
        let home = state.home_pools.iter().position(|home| Some(home) == self.home.as_ref());
        if let Some(index) = home {
            state.home_pools.swap_remove(index);
        }
        drop(state);
        // All, because a waiter for the other kind of permit might take the only notification.
        self.breaker.left.notify_all();
    }
}

impl PoolBreaker {
    pub(crate) fn of(pool: PoolRef) -> Self {
        let state = BreakerState {
            in_flight: BTreeMap::new(),
            begun: 0,
            probe_began: None,
            last_answer: Instant::now(),
            is_hung: false,
            queries: 0,
            foreign_calls: 0,
            home_pools: Vec::new(),
        };
        Self {
            pool,
            state: Mutex::new(state),
            left: Condvar::new(),
            query_threads: QueryThreads::default(),
            attach_failures: AtomicU64::new(0),
        }
    }

    /// Volumes of the pool that could not be made block devices, since the start.
    pub(crate) fn attach_failures(&self) -> u64 {
        self.attach_failures.load(Ordering::Relaxed)
    }

    fn is_watched(&self) -> bool {
        self.pool.health().storage_probe().is_some()
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>) -> PoolCall {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.in_flight.insert(number, Instant::now());
        PoolCall { breaker: Arc::clone(self), number }
    }

    /// Does not wait, so that a caller may poll.
    fn check(self: &Arc<Self>) -> Result<()> {
        self.probe_if(BreakerState::is_slow)
    }

    /// As [`Self::check`], of a pool that may have had no call for long.
    fn watch(self: &Arc<Self>) -> Result<()> {
        self.probe_if(|state| state.is_slow() || state.last_answer.elapsed() >= IDLE_PROBE_INTERVAL)
    }

    fn probe_if(self: &Arc<Self>, is_due: impl FnOnce(&BreakerState) -> bool) -> Result<()> {
        if !self.is_watched() {
            return Ok(());
        }
        let mut state = self.state();
        match state.probe_began {
            Some(since) if since.elapsed() >= PROBE_TIMEOUT => {
                let error = self.hung_error();
                if !state.is_hung {
                    state.is_hung = true;
                    let calls = state.in_flight.len();
                    tracing::warn!(pool = self.pool.name(), calls, "{error}");
                }
                return Err(error);
            }
            Some(_) => {}
            None => {
                if is_due(&state) && self.start_probe() {
                    state.probe_began = Some(Instant::now());
                }
            }
        }
        Ok(())
    }

    /// The same text for as long as it lasts: it is logged when it changes.
    fn hung_error(&self) -> Error {
        Error::unreachable(
            format!("use pool {}", self.pool.name()),
            "its storage does not answer, and calls that need it are refused until it does; look \
             for a frozen filesystem or a broken disk in the kernel log",
        )
    }

    fn is_probed(&self) -> bool {
        let state = self.state();
        state.probe_began.is_some_and(|since| since.elapsed() < PROBE_TIMEOUT)
    }

    /// A pool that answers and has much to do.
    fn busy_error(&self, max: usize) -> Error {
        Error::unreachable(
            format!("use pool {}", self.pool.name()),
            format!("{max} calls of this kind are running on it, which is its limit; try again"),
        )
    }

    fn start_probe(self: &Arc<Self>) -> bool {
        let breaker = Arc::clone(self);
        let ask = move || {
            // An error is an answer, and a call that uses the pool gets it too.
            let probe = breaker.pool.health().storage_probe();
            if let Some(Err(error)) = probe.map(StorageProbe::try_storage) {
                tracing::debug!(pool = breaker.pool.name(), %error, "the pool's storage answers \
                                                                     a probe with an error");
            }
            let mut state = breaker.state();
            state.probe_began = None;
            state.last_answer = Instant::now();
            if std::mem::take(&mut state.is_hung) {
                tracing::info!(pool = breaker.pool.name(), "the pool responds again");
            }
        };
        spawned("pool-answers", ask)
    }

    /// Runs a quick query that changes nothing, and waits at most [`QUERY_TIMEOUT`] for its result.
    pub(crate) fn query<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&PoolRef) -> T + Send + 'static,
    ) -> Result<T> {
        if !self.is_watched() {
            return Ok(query(&self.pool));
        }
        self.check()?;
        let permit = self.admit(MAX_QUERIES, QUERY_TIMEOUT, |state| &mut state.queries)?;
        let (answer, answered) = mpsc::sync_channel(1);
        let asking = move || {
            let answer_now = query(&permit.breaker.pool);
            drop(permit);
            // The caller may have given up.
            let _ = answer.send(answer_now);
        };
        if let Err(error) = self.query_threads.run(asking) {
            let asking = format!("query pool {}", self.pool.name());
            return Err(Error::failed(asking, format!("cannot start a thread: {error}")));
        }
        answered.recv_timeout(QUERY_TIMEOUT).map_err(|reason| match reason {
            RecvTimeoutError::Timeout => self.hung_error(),
            RecvTimeoutError::Disconnected => Error::failed(
                format!("query pool {}", self.pool.name()),
                "the thread that queried it panicked",
            ),
        })
    }

    fn admit(
        self: &Arc<Self>,
        max: usize,
        timeout: Duration,
        of: fn(&mut BreakerState) -> &mut usize,
    ) -> Result<BreakerPermit> {
        let taken = |state: &mut BreakerState| *of(state) >= max;
        let waited = self.left.wait_timeout_while(self.state(), timeout, taken);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            drop(state);
            self.check()?;
            return Err(self.busy_error(max));
        }
        *of(&mut state) += 1;
        drop(state);
        Ok(BreakerPermit { breaker: Arc::clone(self), of, home: None, _call: self.begin() })
    }
}

fn spawned(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    match thread::Builder::new().name(name.to_owned()).spawn(work) {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "cannot start a thread to watch a pool");
            false
        }
    }
}

impl Engine {
    pub fn serves(&self, pool: &PoolId) -> bool {
        self.pools().contains_key(pool)
    }

    /// An error if the pool is known to hang. Does not wait.
    pub fn check_answers(&self, pool: &PoolId) -> Result<()> {
        self.breakers().get(pool).map_or(Ok(()), PoolBreaker::check)
    }

    /// To be called about every second, so that a hung pool is noticed even if no call uses it.
    pub fn watch_pools(&self) {
        for breaker in self.breakers().values() {
            // Every later call on the pool gets the error too.
            let _noted = breaker.watch();
        }
    }

    /// Is a probe running that may still return? Until then its pool is in use.
    pub fn is_probing(&self) -> bool {
        self.breakers().values().any(|breaker| breaker.is_probed())
    }

    /// Pools that do not answer: a stop does not wait for the calls on them.
    pub fn hung_pools(&self) -> Vec<PoolId> {
        let hung = self.breakers().iter().filter(|(_, breaker)| breaker.check().is_err());
        hung.map(|(id, _)| id.clone()).collect()
    }

    /// Counts a call to the pool until the result is dropped.
    pub fn begin_call(&self, pool: &PoolId) -> Option<PoolCall> {
        self.breakers().get(pool).map(PoolBreaker::begin)
    }

    /// How many calls count against the request limit of `home` and wait for another pool, which is hung.
    pub fn calls_hung_elsewhere(&self, home: &PoolId) -> usize {
        let hung = self.breakers().values().filter(|breaker| breaker.check().is_err());
        let lost = |breaker: &Arc<PoolBreaker>| {
            breaker.state().home_pools.iter().filter(|other| *other == home).count()
        };
        hung.map(lost).sum()
    }

    /// For a call that turned out to use this pool after it had begun. `home` is the pool whose request limit it counts
    /// against, if any.
    pub(crate) fn admit_foreign_call(
        &self,
        pool: &PoolRef,
        home: Option<&PoolId>,
    ) -> Result<Option<BreakerPermit>> {
        let Some(breaker) = self.breakers().get(pool.id()).filter(|it| it.is_watched()) else {
            return Ok(None);
        };
        breaker.check()?;
        let mut permit =
            breaker.admit(MAX_FOREIGN_CALLS, QUERY_TIMEOUT, |state| &mut state.foreign_calls)?;
        breaker.state().home_pools.extend(home.cloned());
        permit.home = home.cloned();
        Ok(Some(permit))
    }

    /// Makes the volume a block device here. Failures are counted: an orchestrator repeats the call, which hides them.
    pub(crate) fn ensure_attached(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        access: DeviceAccess,
    ) -> Result<Device> {
        let device = pool.devices().ensure_attached(id, access).inspect_err(|_| {
            if let Some(breaker) = self.breakers().get(pool.id()) {
                breaker.attach_failures.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        // Only for metrics.
        if let Err(error) = self.host().note_attached(id, &device) {
            tracing::debug!(%error, "cannot record what the device did for other volumes before");
        }
        Ok(device)
    }

    pub(crate) fn query<T: Send + 'static>(
        &self,
        pool: &PoolRef,
        query: impl FnOnce(&PoolRef) -> T + Send + 'static,
    ) -> Result<T> {
        match self.breakers().get(pool.id()) {
            Some(breaker) => breaker.query(query),
            None => Ok(query(pool)),
        }
    }
}

#[cfg(test)]
mod tests;
