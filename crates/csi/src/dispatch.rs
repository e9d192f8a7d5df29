//! Carries calls from the asynchronous edge to the synchronous engine.

use std::sync::{Arc, PoisonError, RwLock};

use orlop_engine::Engine;
use orlop_model::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::JoinError;
use tracing::Span;

/// Operations at once. Beyond this, calls wait their turn: a storm of them must not turn into
/// as many threads that contend for one disk.
const OPERATIONS: u32 = 64;

/// Health checks at once, beside the operations: Probe answers while all of them are busy, and
/// a pool that hangs does not collect one thread for every probe.
const HEALTH_CHECKS: u32 = 2;

/// Streams that read at once, beside the operations: a stream reads for as long as its caller
/// likes, and must not take an operation's place for that long.
const READING_STREAMS: u32 = 8;

/// Streams that are open at once, most of them waiting for their callers to catch up. Each holds
/// files open.
const OPEN_STREAMS: u32 = 64;

/// The engine, once it is there, and the way to it.
pub struct Core {
    engine: RwLock<Option<Arc<Engine>>>,
    operations: Lane,
    health_checks: Lane,
    reading_streams: Lane,
    open_streams: Arc<Semaphore>,
}

impl Core {
    /// Without an engine yet: all work is refused with [`Error::Starting`].
    pub fn starting() -> Self {
        Self {
            engine: RwLock::default(),
            operations: Lane::new(OPERATIONS),
            health_checks: Lane::new(HEALTH_CHECKS),
            reading_streams: Lane::new(READING_STREAMS),
            open_streams: Arc::new(Semaphore::new(permits(OPEN_STREAMS))),
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

    /// Waits until nothing runs any more, also what runs for callers that hung up, and lets
    /// nothing begin after that.
    pub async fn drained(&self) {
        self.operations.drained().await;
        self.health_checks.drained().await;
        self.reading_streams.drained().await;
    }

    /// Waits for a moment in which nothing runs.
    pub(crate) async fn idle(&self) {
        self.operations.idle().await;
        self.reading_streams.idle().await;
    }

    /// Streams end at their next step: whoever reads one can take it up again later, from
    /// where it broke off.
    pub(crate) fn end_streams(&self) {
        self.open_streams.close();
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = self.engine()?;
        self.operations.run(move || work(&engine)).await
    }

    /// A place among the open streams, for as long as it is held.
    pub(crate) fn try_open_stream(&self) -> Result<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.open_streams).try_acquire_owned();
        place.map_err(|refusal| match refusal {
            TryAcquireError::Closed => Error::Stopping,
            TryAcquireError::NoPermits => {
                Error::Exhausted(format!("{OPEN_STREAMS} streams are open already; try later"))
            }
        })
    }

    /// One step of a stream: short, and with nothing held between two of them but what the
    /// stream itself holds.
    pub(crate) async fn step<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = self.engine()?;
        if self.open_streams.is_closed() {
            return Err(Error::Stopping);
        }
        self.reading_streams.run(move || work(&engine)).await
    }

    pub(crate) async fn check_health(&self) -> Result<()> {
        let engine = self.engine()?;
        self.health_checks.run(move || engine.check_health()).await
    }
}

/// A bounded way onto the blocking threads.
struct Lane {
    width: u32,
    free: Arc<Semaphore>,
}

impl Lane {
    fn new(width: u32) -> Self {
        Self { width, free: Arc::new(Semaphore::new(permits(width))) }
    }

    /// A caller that hangs up while it waits for its turn is forgotten. Once begun, the work is
    /// finished whether or not anyone still listens (GEN-26), and keeps its place in the lane
    /// until then.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = Arc::clone(&self.free).acquire_owned().await;
        let turn = turn.map_err(|_| Error::Stopping)?;
        let span = Span::current();
        let running = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            span.in_scope(work)
        });
        running.await.unwrap_or_else(|error| Err(interrupted(&error)))
    }

    /// Fails only if the lane is closed: what ran then is someone else's to wait for.
    async fn idle(&self) {
        drop(self.free.acquire_many(self.width).await);
    }

    async fn drained(&self) {
        // Fails only if the lane is closed already, and then it was drained before.
        let all = self.free.acquire_many(self.width).await;
        self.free.close();
        drop(all);
    }
}

/// A u32 always fits where Linux runs; fewer places would be correct too.
fn permits(width: u32) -> usize {
    usize::try_from(width).unwrap_or(1)
}

/// The operation ended without a result: it panicked, or the runtime went away under it.
fn interrupted(error: &JoinError) -> Error {
    tracing::error!(%error, "an operation ended without a result");
    Error::failed("finish the operation", "it ended unexpectedly; this plugin's log says where")
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
