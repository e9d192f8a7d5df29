//! The answer to Probe, kept for a moment while all is well.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use orlop_engine::{Engine, HealthReport};
use orlop_model::Result;

use super::Executor;

/// For how long a good report is kept: several callers probe each plugin, and much less often than this. Trouble is seen
/// that much later at most.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The last report in which every pool was well. Any other is made afresh for each call, so that an end of trouble
/// is seen at once.
#[derive(Default)]
pub(super) struct KeptHealth(Mutex<Option<KeptReport>>);

struct KeptReport {
    /// Other pools were served by another engine.
    engine: Weak<Engine>,
    /// When the check began.
    since: Instant,
    report: HealthReport,
}

impl KeptHealth {
    fn last(&self) -> MutexGuard<'_, Option<KeptReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, engine: &Arc<Engine>, now: Instant) -> Option<HealthReport> {
        let last = self.last();
        let kept = last.as_ref().filter(|kept| {
            std::ptr::eq(kept.engine.as_ptr(), Arc::as_ptr(engine))
                && now.saturating_duration_since(kept.since) < KEPT_FOR
        })?;
        Some(kept.report.clone())
    }

    /// Keeps what a check found that began at `since`.
    fn keep(&self, engine: &Arc<Engine>, since: Instant, report: &HealthReport) {
        let is_kept = report.failed.is_empty();
        *self.last() = is_kept.then(|| KeptReport {
            engine: Arc::downgrade(engine),
            since,
            report: report.clone(),
        });
    }

    fn discard(&self) {
        *self.last() = None;
    }
}

impl Executor {
    /// What is wrong with some pools, while others serve. A good report may be up to a second old.
    pub(crate) async fn check_health(&self) -> Result<HealthReport> {
        let engine = self.engine()?;
        let now = Instant::now();
        if let Some(report) = self.kept_health.report(&engine, now) {
            return Ok(report);
        }
        let checked = Arc::clone(&engine);
        let report = self.health_checks.run(move || checked.check_health()).await;
        match &report {
            Ok(report) => self.kept_health.keep(&engine, now, report),
            Err(_) => self.kept_health.discard(),
        }
        report
    }
}

#[cfg(test)]
#[path = "kept_health_tests.rs"]
mod tests;
