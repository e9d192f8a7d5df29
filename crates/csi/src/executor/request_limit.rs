//! A bounded number of calls at once on the blocking threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_engine::WaiterLimit;
use orlop_model::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tracing::Span;

use super::LOOK_AGAIN;

/// How many calls of one kind, on one pool, run at once.
pub(super) struct RequestLimit {
    pub(super) width: u32,
    pub(super) free: Arc<Semaphore>,
    /// Not what is missing from `free`: who waits until all are free has those that are.
    running: Arc<AtomicUsize>,
    /// For those of them that wait for a lock.
    pub(super) waiters: WaiterLimit,
}

/// The right to run one call, for as long as it is held.
pub(super) struct Permit {
    running: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RequestLimit {
    pub(super) fn new(width: u32) -> Self {
        let free = Arc::new(Semaphore::new(permits(width)));
        Self { width, free, running: Arc::default(), waiters: WaiterLimit::default() }
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    fn counted(&self, permit: OwnedSemaphorePermit) -> Permit {
        self.running.fetch_add(1, Ordering::SeqCst);
        Permit { running: Arc::clone(&self.running), _permit: permit }
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        begin(self.permit(|| Ok(())).await?, work).await
    }

    /// A caller that hangs up while it waits is forgotten. `check` is asked now and then
    /// whether there is still a reason to wait.
    pub(super) async fn permit(&self, check: impl Fn() -> Result<()>) -> Result<Permit> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(self.counted(permit));
        }
        let permit = Arc::clone(&self.free).acquire_owned();
        tokio::pin!(permit);
        loop {
            tokio::select! {
                permit = &mut permit => {
                    return permit.map(|permit| self.counted(permit)).map_err(|_| Error::Stopping);
                }
                () = tokio::time::sleep(LOOK_AGAIN) => check()?,
            }
        }
    }

    pub(super) async fn drained(&self) {
        // Fails only if the limit is closed already, and then it was drained before.
        let all = self.free.acquire_many(self.width).await;
        self.free.close();
        drop(all);
    }
}

/// Once begun, the work is finished whether or not the caller still listens (GEN-26), and keeps its
/// permit until then.
pub(super) async fn begin<T: Send + 'static>(
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

/// A u32 always fits where Linux runs; fewer permits would be correct too.
pub(super) fn permits(width: u32) -> usize {
    usize::try_from(width).unwrap_or(1)
}

/// The operation ended without a result: it panicked, or the runtime went away under it.
fn interrupted(error: &JoinError) -> Error {
    tracing::error!(%error, "an operation ended without a result");
    Error::failed("finish the operation", "a thread panicked; this plugin's log says where")
}
