//! Carries calls from the asynchronous edge to the synchronous engine.
//!
//! Each pool has its own request limits, one for calls of the controller and one for those of the node: a
//! call that is blocked in the kernel by a hung pool keeps its permit, and must not use up those of others.

mod draining;
mod kept_health;
mod running_calls;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use orlop_engine::request::{CreateVolume, VolumeRef};
use orlop_engine::{Engine, WaiterLimit};
use orlop_model::{Error, PoolId, Result, Topology};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::JoinError;
use tracing::Span;

use crate::call_stats::CallStats;
use crate::event_log::EventLog;
use crate::readiness::Readiness;
use draining::NODE_CALLS_STOP_TIMEOUT;
use kept_health::KeptHealth;
pub use running_calls::RunningCalls;
use running_calls::Waiting;

/// Operations at once, of one kind on one pool. Beyond this, calls wait their turn: a storm of them
/// must not turn into as many threads that contend for one disk.
const OPERATIONS: u32 = 64;

/// Health checks at once, beside the operations: Probe answers while all of them are busy, and
/// a pool that hangs does not collect one thread for every probe.
const HEALTH_CHECKS: u32 = 2;

/// Streams that read at once from one pool, beside the operations: a stream reads for as long as its
/// caller likes, and must not keep an operation's permit for that long.
const READING_STREAMS: u32 = 8;

/// Streams that are open at once, most of them waiting for their callers to catch up. Each holds
/// files open.
const OPEN_STREAMS: u32 = 64;

/// Long lists that are built at once. Each has copies of all records in memory until its reply is made; further ones wait,
/// so that the memory for lists does not depend on the number of callers.
const LONG_LISTS: u32 = 2;

/// A list of more entries is a long one.
const SHORT_LIST: usize = 1000;

/// How long a stream waits for its caller to read the next page. A slow backup reads one at least every few
/// seconds; one that was stopped and forgotten must not keep its permit.
const UNREAD_STREAM_TIMEOUT: Duration = Duration::from_secs(300);

/// How often it is checked whether the pools answer, and whether a call should still wait for its permit.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How many threads can be busy at once, by the number of pools: with fewer, one pool would wait for
/// the threads of another.
pub fn max_threads(pools: usize) -> usize {
    /// For probes and other work beside calls.
    const BESIDE_CALLS: usize = 32;
    let per_pool = 2 * permits(OPERATIONS) + permits(READING_STREAMS);
    pools.saturating_add(1).saturating_mul(per_pool).saturating_add(BESIDE_CALLS)
}

/// A u32 always fits where Linux runs; fewer permits would be correct too.
fn permits(width: u32) -> usize {
    usize::try_from(width).unwrap_or(1)
}

/// What a call is about, which decides the request limit that it counts for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// No pool in particular: such a call must not wait for any of them.
    Any,
    Pool(PoolId),
    /// A volume on this node.
    Node(Option<PoolId>),
    /// As [`Subject::Node`], for what needs the kernel alone, whether or not the pool answers.
    Clearing(Option<PoolId>),
    Stream(PoolId),
}

impl Subject {
    pub(crate) fn node(volume: &VolumeRef) -> Self {
        Self::Node(volume.pool().cloned())
    }

    pub(crate) fn clearing(volume: &VolumeRef) -> Self {
        Self::Clearing(volume.pool().cloned())
    }

    fn pool(&self) -> Option<&PoolId> {
        match self {
            Self::Any => None,
            Self::Pool(pool) | Self::Stream(pool) => Some(pool),
            Self::Node(pool) | Self::Clearing(pool) => pool.as_ref(),
        }
    }

    /// Ids of pools that are not served here could be made up without end.
    fn limit(&self, engine: &Engine) -> LimitKey {
        let pool = self.pool().filter(|pool| engine.serves(pool)).cloned();
        let kind = match self {
            Self::Any | Self::Pool(_) => CallKind::Controller,
            Self::Node(_) | Self::Clearing(_) => CallKind::Node,
            Self::Stream(_) => CallKind::Stream,
        };
        LimitKey { kind, pool }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CallKind {
    Controller,
    Node,
    Stream,
}

impl CallKind {
    fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "node",
            Self::Stream => "stream",
        }
    }

    fn width(self) -> u32 {
        match self {
            Self::Controller | Self::Node => OPERATIONS,
            Self::Stream => READING_STREAMS,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LimitKey {
    kind: CallKind,
    pool: Option<PoolId>,
}

/// How many calls of one kind, on one pool, run at once.
struct RequestLimit {
    width: u32,
    free: Arc<Semaphore>,
    /// Calls that run. Not the permits that are missing from `free`: a stop that waits for all permits already has
    /// the free ones.
    running: Arc<AtomicUsize>,
    /// For the calls under this limit that wait for a lock.
    waiters: WaiterLimit,
    /// For a permit.
    waiting: Arc<AtomicUsize>,
}

/// The right to run one call, for as long as it is held.
struct Permit {
    running: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RequestLimit {
    fn new(width: u32) -> Self {
        let free = Arc::new(Semaphore::new(permits(width)));
        Self {
            width,
            free,
            running: Arc::default(),
            waiters: WaiterLimit::default(),
            waiting: Arc::default(),
        }
    }

    fn counted(&self, permit: OwnedSemaphorePermit) -> Permit {
        self.running.fetch_add(1, Ordering::SeqCst);
        Permit { running: Arc::clone(&self.running), _permit: permit }
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        begin(self.permit(|| Ok(())).await?, work).await
    }

    /// Waits for a permit; dropped if the caller hangs up. `check` is called at intervals, and ends the wait with
    /// its error.
    async fn permit(&self, check: impl Fn() -> Result<()>) -> Result<Permit> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(self.counted(permit));
        }
        let _waiting = Waiting::begin(&self.waiting);
        let permit = Arc::clone(&self.free).acquire_owned();
        tokio::pin!(permit);
        loop {
            tokio::select! {
                permit = &mut permit => {
                    return permit.map(|permit| self.counted(permit)).map_err(|_| Error::Stopping);
                }
                () = tokio::time::sleep(CHECK_INTERVAL) => check()?,
            }
        }
    }
}

/// Once begun, the work is finished whether or not the caller still listens (GEN-26), and keeps its
/// permit until then.
async fn begin<T: Send + 'static>(
    permit: Permit,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let span = Span::current();
    let running = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        span.in_scope(work)
    });
    running.await.unwrap_or_else(|error| Err(interrupted(&error)))
}

/// The operation ended without a result: it panicked, or the runtime went away under it.
fn interrupted(error: &JoinError) -> Error {
    tracing::error!(%error, "an operation ended without a result");
    Error::failed("finish the operation", "a thread panicked; this plugin's log says where")
}

/// What a list found, to be kept until the reply is made of it.
pub(crate) struct Listed<T> {
    pub(crate) page: T,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

#[derive(Default)]
struct RequestLimits {
    all: BTreeMap<LimitKey, Arc<RequestLimit>>,
    closed: bool,
}

/// Runs calls on the engine, once that is there, on blocking threads.
pub struct Executor {
    engine: RwLock<Option<Arc<Engine>>>,
    limits: Mutex<RequestLimits>,
    health_checks: RequestLimit,
    kept_health: KeptHealth,
    open_streams: Arc<Semaphore>,
    long_lists: Arc<Semaphore>,
    /// What was wrong when Probe was asked the last time.
    readiness: Mutex<Readiness>,
    stopping_since: OnceLock<Instant>,
    node_calls_stop_timeout: Duration,
    stream_timeout: Duration,
    calls: Arc<CallStats>,
    events: Arc<EventLog>,
}

impl Executor {
    /// Without an engine yet: all work is refused with [`Error::Starting`].
    pub fn starting() -> Self {
        Self {
            engine: RwLock::default(),
            limits: Mutex::default(),
            health_checks: RequestLimit::new(HEALTH_CHECKS),
            kept_health: KeptHealth::default(),
            open_streams: Arc::new(Semaphore::new(permits(OPEN_STREAMS))),
            long_lists: Arc::new(Semaphore::new(permits(LONG_LISTS))),
            readiness: Mutex::default(),
            stopping_since: OnceLock::new(),
            node_calls_stop_timeout: NODE_CALLS_STOP_TIMEOUT,
            stream_timeout: UNREAD_STREAM_TIMEOUT,
            calls: Arc::default(),
            events: Arc::default(),
        }
    }

    /// With what happened in this process, to be shown to callers.
    #[must_use]
    pub fn with_events(self, events: &Arc<EventLog>) -> Self {
        Self { events: Arc::clone(events), ..self }
    }

    pub(crate) fn events(&self) -> &EventLog {
        &self.events
    }

    /// The pools are read: from now on, calls reach this engine. Those that run stay with theirs.
    pub fn ready(&self, engine: Arc<Engine>) {
        *self.engine.write().unwrap_or_else(PoisonError::into_inner) = Some(engine);
    }

    /// What was counted of all calls so far.
    pub fn calls(&self) -> &Arc<CallStats> {
        &self.calls
    }

    /// [`Error::Starting`] until the pools are read.
    pub fn engine(&self) -> Result<Arc<Engine>> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        engine.clone().ok_or(Error::Starting)
    }

    /// Where what is on the pool can be used.
    pub(crate) fn topology_of(&self, pool: &PoolId) -> Topology {
        self.engine().map(|engine| engine.topology_of(pool)).unwrap_or_default()
    }

    /// Checks the pools, and the volumes in use, at intervals, for as long as it is polled.
    pub(crate) async fn watch_pools(&self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if let Ok(engine) = self.engine() {
                engine.watch_pools();
                engine.watch_staged();
            }
        }
    }

    fn limit(&self, name: LimitKey) -> Result<Arc<RequestLimit>> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limit) = limits.all.get(&name) {
            return Ok(Arc::clone(limit));
        }
        if limits.closed {
            return Err(Error::Stopping);
        }
        let limit = Arc::new(RequestLimit::new(name.kind.width()));
        limits.all.insert(name, Arc::clone(&limit));
        Ok(limit)
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        subject: Subject,
        work: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = self.engine()?;
        let name = subject.limit(&engine);
        let pool = name.pool.clone();
        let check = || pool.as_ref().map_or(Ok(()), |pool| engine.check_answers(pool));
        match subject {
            Subject::Clearing(_) => {}
            Subject::Any | Subject::Pool(_) | Subject::Node(_) | Subject::Stream(_) => check()?,
        }
        let limit = self.limit(name)?;
        let permit = limit.permit(check).await?;
        let engine = engine.with_waiter_limit(&limit.waiters);
        let work = move || {
            let _call = pool.and_then(|pool| engine.begin_call(&pool));
            work(&engine)
        };
        begin(permit, work).await
    }

    /// A list of at most `max` entries, where 0 is no limit.
    pub(crate) async fn list<T: Send + 'static>(
        &self,
        max: usize,
        work: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<Listed<T>> {
        let permit = match max {
            1..=SHORT_LIST => None,
            _ => {
                let permit = Arc::clone(&self.long_lists).acquire_owned().await;
                Some(permit.map_err(|_| Error::Stopping)?)
            }
        };
        // The permit goes with the work, which is finished also if the caller hangs up.
        let listed = move |engine: &Engine| Ok(Listed { page: work(engine)?, permit });
        self.run(Subject::Any, listed).await
    }

    /// The pool of a volume to create is found out first, so that the call counts for that pool's limit.
    pub(crate) async fn home_of(&self, wanted: &CreateVolume) -> Result<Option<PoolId>> {
        if let Some(home) = self.engine()?.certain_home(wanted) {
            return Ok(Some(home));
        }
        let wanted = wanted.clone();
        self.run(Subject::Any, move |engine| Ok(engine.likely_home(&wanted))).await
    }

    /// A permit for an open stream, for as long as it is held.
    pub(crate) fn try_open_stream(&self) -> Result<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.open_streams).try_acquire_owned();
        permit.map_err(|refusal| match refusal {
            TryAcquireError::Closed => Error::Stopping,
            TryAcquireError::NoPermits => Error::exhausted(format!(
                "cannot open another stream: {OPEN_STREAMS} are open \
                     already; try again later"
            )),
        })
    }

    pub(crate) fn stream_timeout(&self) -> Duration {
        self.stream_timeout
    }

    /// One step of a stream: short, and with nothing held between two of them but what the
    /// stream itself holds.
    pub(crate) async fn step<T: Send + 'static>(
        &self,
        pool: &PoolId,
        work: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.open_streams.is_closed() {
            return Err(Error::Stopping);
        }
        self.run(Subject::Stream(pool.clone()), work).await
    }

    /// Probe has no message for "not ready", nor for "ready, but for one pool", so what is wrong is
    /// logged when it changes.
    pub(crate) fn note_readiness(&self, ready: bool, all: Vec<Error>) {
        let mut readiness = self.readiness.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *readiness, Readiness { unready: !ready, all });
        readiness.log_after(&before);
    }
}

#[cfg(test)]
impl Executor {
    /// As [`Self::starting`], with another timeout for streams.
    pub(crate) fn with_stream_timeout(timeout: Duration) -> Self {
        Self { stream_timeout: timeout, ..Self::starting() }
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
