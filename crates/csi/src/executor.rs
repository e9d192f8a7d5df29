//! Carries calls from the asynchronous edge to the synchronous engine.
//!
//! Each pool has its own request limits, one for calls of the controller and one for those of the node: a
//! call that is blocked in the kernel by a hung pool keeps its permit, and must not use up those of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use orlop_engine::Engine;
use orlop_engine::request::{CreateVolume, VolumeRef};
use orlop_model::{Error, PoolId, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::readiness::Readiness;

use request_limit::{RequestLimit, begin, permits};

mod request_limit;

/// Operations at once, of one kind on one pool. Beyond this, calls wait their turn: a storm of them
/// must not turn into as many threads that contend for one disk.
const OPERATIONS: u32 = 64;

/// Health checks at once, beside the operations: Probe answers while all of them are busy, and
/// a pool that hangs does not collect one thread for every probe.
const HEALTH_CHECKS: u32 = 2;

/// Streams that read at once from one pool, beside the operations: a stream reads for as long as its
/// caller likes, and must not take an operation's place for that long.
const READING_STREAMS: u32 = 8;

/// Streams that are open at once, most of them waiting for their callers to catch up. Each holds
/// files open.
const OPEN_STREAMS: u32 = 64;

/// So long a stream waits for its caller to take the next page. A backup that is slow takes one at
/// least every few seconds; one that was stopped and forgotten would keep the stream from others.
const UNREAD_STREAM: Duration = Duration::from_secs(300);

/// The interval at which pools are checked for an answer, with and without calls that wait.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// So long a stop waits for calls of the node: what they wait for in the kernel, be it a cluster or the
/// filesystem of a target path, the pool cannot tell (decision 0041).
const ON_THE_NODE: Duration = Duration::from_secs(60);

/// How many threads can be busy at once, by the number of pools: with fewer, one pool would wait for
/// the threads of another.
pub fn most_threads(pools: usize) -> usize {
    const SPARE: usize = 32;
    let of_one = 2 * permits(OPERATIONS) + permits(READING_STREAMS);
    pools.saturating_add(1).saturating_mul(of_one).saturating_add(SPARE)
}

/// What a call is about, which decides the request limit that it counts for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// No pool in particular: what is asked here must not wait for any of them.
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

/// What becomes of a request limit once nothing runs under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterWait {
    GoOn,
    Close,
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
    open_streams: Arc<Semaphore>,
    /// What was wrong when Probe was asked the last time.
    readiness: Mutex<Readiness>,
    stopping_since: OnceLock<Instant>,
    node_patience: Duration,
    stream_patience: Duration,
}

impl Executor {
    /// Without an engine yet: all work is refused with [`Error::Starting`].
    pub fn starting() -> Self {
        Self {
            engine: RwLock::default(),
            limits: Mutex::default(),
            health_checks: RequestLimit::new(HEALTH_CHECKS),
            open_streams: Arc::new(Semaphore::new(permits(OPEN_STREAMS))),
            readiness: Mutex::default(),
            stopping_since: OnceLock::new(),
            node_patience: ON_THE_NODE,
            stream_patience: UNREAD_STREAM,
        }
    }

    /// The pools are read: from now on, calls reach this engine. Those that run stay with theirs.
    pub fn ready(&self, engine: Arc<Engine>) {
        *self.engine.write().unwrap_or_else(PoisonError::into_inner) = Some(engine);
    }

    fn engine(&self) -> Result<Arc<Engine>> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        engine.clone().ok_or(Error::Starting)
    }

    /// Pools that do not answer: what runs on them is not waited for.
    pub fn hung_pools(&self) -> Vec<PoolId> {
        self.engine().map(|engine| engine.hung_pools()).unwrap_or_default()
    }

    /// Waits until nothing runs any more, also what runs for callers that hung up, and lets
    /// nothing begin after that. What runs on a pool that does not answer is not waited for: it
    /// cannot be called off, and ends as if the daemon had been killed.
    pub async fn drained(&self) {
        for (name, limit) in self.close_limits() {
            self.wait_for(&name, &limit, AfterWait::Close).await;
        }
        self.health_checks.drained().await;
        while self.engine().is_ok_and(|engine| engine.is_probing()) {
            tokio::time::sleep(LOOK_AGAIN / 10).await;
        }
    }

    /// Looks after the pools for as long as it is polled.
    pub(crate) async fn watch_pools(&self) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            if let Ok(engine) = self.engine() {
                engine.watch_pools();
            }
        }
    }

    /// Waits for a moment in which nothing runs, but for pools that do not answer.
    pub(crate) async fn idle(&self) {
        for (name, limit) in self.limits() {
            self.wait_for(&name, &limit, AfterWait::GoOn).await;
        }
    }

    async fn wait_for(&self, name: &LimitKey, limit: &RequestLimit, then: AfterWait) {
        const SAY_AGAIN: u32 = 10;
        self.stopping_since.get_or_init(Instant::now);
        let all = limit.free.acquire_many(limit.width);
        tokio::pin!(all);
        for second in 0u32.. {
            tokio::select! {
                // Fails only if the limit is closed, and then it was drained before.
                all = &mut all => {
                    if then == AfterWait::Close {
                        limit.free.close();
                    }
                    drop(all);
                    return;
                }
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
            let pool = name.pool.as_ref().map(ToString::to_string).unwrap_or_default();
            let running = limit.running();
            if self.is_lost(name, running) {
                tracing::error!(
                    pool,
                    running,
                    "stopping without waiting for calls that are blocked in the kernel"
                );
                if then == AfterWait::Close {
                    limit.free.close();
                }
                return;
            }
            if second % SAY_AGAIN == 0 {
                tracing::info!(pool, running, "stopping: waiting for running calls to end");
            }
        }
    }

    /// Will nothing that runs under the limit end before a pool responds again?
    fn is_lost(&self, name: &LimitKey, running: usize) -> bool {
        if name.kind == CallKind::Node && self.is_over_for_nodes() {
            return true;
        }
        let Ok(engine) = self.engine() else { return false };
        let hung = engine.hung_pools();
        let lost_elsewhere = |pool: &PoolId| {
            let lost = engine.calls_hung_elsewhere(pool);
            lost > 0 && lost >= running
        };
        match (name.kind, &name.pool) {
            (_, None) => !hung.is_empty(),
            (_, Some(pool)) if hung.contains(pool) => true,
            // Another pool may have taken the volume that it is to create.
            (CallKind::Controller, Some(pool)) => lost_elsewhere(pool),
            (CallKind::Node | CallKind::Stream, Some(_)) => false,
        }
    }

    fn is_over_for_nodes(&self) -> bool {
        self.stopping_since.get().is_some_and(|since| since.elapsed() >= self.node_patience)
    }

    fn limits(&self) -> BTreeMap<LimitKey, Arc<RequestLimit>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    fn close_limits(&self) -> BTreeMap<LimitKey, Arc<RequestLimit>> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.closed = true;
        limits.all.clone()
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

    /// Streams end at their next step: its reader can take it up again later, from
    /// where it broke off.
    pub(crate) fn end_streams(&self) {
        self.open_streams.close();
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

    pub(crate) fn stream_patience(&self) -> Duration {
        self.stream_patience
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

    /// What is wrong with some pools, while others serve.
    pub(crate) async fn check_health(&self) -> Result<Vec<Error>> {
        let engine = self.engine()?;
        self.health_checks.run(move || engine.check_health()).await
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
    /// As [`Self::starting`], with less patience for streams.
    pub(crate) fn with_stream_patience(patience: Duration) -> Self {
        Self { stream_patience: patience, ..Self::starting() }
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
