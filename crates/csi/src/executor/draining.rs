//! How the daemon stops: it waits for running calls, but not for those that cannot end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use orlop_model::PoolId;

use super::{CHECK_INTERVAL, CallKind, Executor, LimitKey, RequestLimit};

/// How long a stop waits for calls of the node side. They may be blocked in the kernel by a Ceph cluster or by
/// the filesystem of a target path, which no pool's breaker notices (decision 0041).
pub(super) const NODE_CALLS_STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// What becomes of a request limit once nothing runs under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterWait {
    GoOn,
    Close,
}

impl Executor {
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
            tokio::time::sleep(CHECK_INTERVAL / 10).await;
        }
    }

    /// Waits for a moment in which nothing runs, but for pools that do not answer.
    pub(crate) async fn idle(&self) {
        for (name, limit) in self.limits() {
            self.wait_for(&name, &limit, AfterWait::GoOn).await;
        }
    }

    async fn wait_for(&self, name: &LimitKey, limit: &RequestLimit, then: AfterWait) {
        const LOG_INTERVAL_SECONDS: u32 = 10;
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
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
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
            if second % LOG_INTERVAL_SECONDS == 0 {
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
        self.stopping_since
            .get()
            .is_some_and(|since| since.elapsed() >= self.node_calls_stop_timeout)
    }

    fn limits(&self) -> BTreeMap<LimitKey, Arc<RequestLimit>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    fn close_limits(&self) -> BTreeMap<LimitKey, Arc<RequestLimit>> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.closed = true;
        limits.all.clone()
    }

    /// Streams end at their next step: their readers can take them up again later, from where they
    /// broke off.
    pub(crate) fn end_streams(&self) {
        self.open_streams.close();
    }
}

impl RequestLimit {
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub(super) async fn drained(&self) {
        // Fails only if the limit is closed already, and then it was drained before.
        let all = self.free.acquire_many(self.width).await;
        self.free.close();
        drop(all);
    }
}
