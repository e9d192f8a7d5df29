//! Carries calls from the asynchronous edge to the synchronous engine.

use std::sync::{Arc, OnceLock};

use orlop_engine::Engine;
use orlop_model::{Error, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tracing::Span;

/// Operations at once. Beyond this, calls wait their turn: a storm of them must not turn into
/// as many threads that contend for one disk.
const OPERATIONS: u32 = 64;

/// Health checks at once, beside the operations: Probe answers while all of them are busy, and
/// a pool that hangs does not collect one thread for every probe.
const HEALTH_CHECKS: u32 = 2;

/// The engine, once it is there, and the way to it.
pub struct Core {
    engine: OnceLock<Arc<Engine>>,
    operations: Lane,
    health_checks: Lane,
}

impl Core {
    /// Without an engine yet: all work is refused with [`Error::Starting`].
    pub fn starting() -> Self {
        Self {
            engine: OnceLock::new(),
            operations: Lane::new(OPERATIONS),
            health_checks: Lane::new(HEALTH_CHECKS),
        }
    }

    /// The pools are read: from now on, calls reach this engine. The first one stays.
    pub fn ready(&self, engine: Arc<Engine>) {
        self.engine.get_or_init(|| engine);
    }

    /// Waits until nothing runs any more, also what runs for callers that hung up, and lets
    /// nothing begin after that.
    pub async fn drained(&self) {
        self.operations.drained().await;
        self.health_checks.drained().await;
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = Arc::clone(self.engine.get().ok_or(Error::Starting)?);
        self.operations.run(move || work(&engine)).await
    }

    pub(crate) async fn check_health(&self) -> Result<()> {
        let engine = Arc::clone(self.engine.get().ok_or(Error::Starting)?);
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
        // A u32 always fits where Linux runs; a narrower lane would be correct too.
        let permits = usize::try_from(width).unwrap_or(1);
        Self { width, free: Arc::new(Semaphore::new(permits)) }
    }

    /// A caller that hangs up while it waits for its turn is forgotten. Once begun, the work is
    /// finished whether or not anyone still listens (GEN-26), and keeps its place in the lane
    /// until then.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = Arc::clone(&self.free).acquire_owned().await;
        let turn = turn.map_err(|_| Error::failed("begin the operation", "shutting down"))?;
        let span = Span::current();
        let running = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            span.in_scope(work)
        });
        running.await.unwrap_or_else(|error| Err(interrupted(&error)))
    }

    async fn drained(&self) {
        // Fails only if the lane is closed already, and then it was drained before.
        let all = self.free.acquire_many(self.width).await;
        self.free.close();
        drop(all);
    }
}

/// The operation ended without a result: it panicked, or the runtime went away under it.
fn interrupted(error: &JoinError) -> Error {
    tracing::error!(%error, "an operation ended without a result");
    Error::failed("finish the operation", "it ended unexpectedly; this plugin's log says where")
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
