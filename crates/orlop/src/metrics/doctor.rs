//! What the doctor found at its last examination of the pools that this daemon serves. An examination reads every
//! record, so no scrape waits for one: a scrape that finds the last one outdated starts the next in the background.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use orlop_engine::{PoolFigures, PoolState};

use super::family::{Family, Kind};
use crate::config::{Config, PoolConfig};
use crate::doctor::Examination;

/// After a repair, `orlop doctor` shows at once what is left; the metrics follow with the next examination.
const EXAMINATION_INTERVAL: Duration = Duration::from_secs(15 * 60);

pub(super) struct DoctorMetrics {
    /// With pools of this machine alone: orphans on Ceph are found by the garbage collection of any controller.
    config: Config,
    /// How many pools the daemon has, of every kind.
    all_pools: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_examining: bool,
    last: Option<Examined>,
}

struct Examined {
    ended: Instant,
    /// In seconds since 1970.
    timestamp: f64,
    /// By pool, or nothing for the machine, and code.
    findings: BTreeMap<(String, &'static str), usize>,
    unexamined: usize,
}

/// Clears the mark even if the examination panics: otherwise there would be no further one.
struct UnderWay(Arc<Mutex<State>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.0).is_examining = false;
    }
}

impl DoctorMetrics {
    pub(super) fn new(config: &Config) -> Self {
        let mut config = config.clone();
        let all_pools = config.pools.len();
        config.pools.retain(PoolConfig::is_local);
        Self { config, all_pools, state: Arc::default() }
    }

    /// Never waits for an examination.
    pub(super) fn families(&self, pools: &[PoolFigures]) -> Vec<Family> {
        self.examine_if_due(pools);
        let gauge = |name, help| Family::new(name, Kind::Gauge, help);
        let mut findings = gauge(
            "orlop_doctor_findings",
            "What the doctor found at its last examination, by pool and code",
        );
        let mut unexamined =
            gauge("orlop_doctor_unexamined", "What the last examination could not read");
        let mut timestamp = gauge(
            "orlop_doctor_examination_timestamp_seconds",
            "When the last examination ended, as Unix time",
        );
        if let Some(last) = &lock(&self.state).last {
            for ((pool, code), count) in &last.findings {
                findings.add_count(&[("pool", pool), ("code", code)], *count);
            }
            unexamined.add_count(&[], last.unexamined);
            timestamp.add_real(&[], last.timestamp);
        }
        vec![findings, unexamined, timestamp]
    }

    fn examine_if_due(&self, pools: &[PoolFigures]) {
        let is_up = |pool: &PoolConfig| {
            pools.iter().any(|it| it.name == pool.name() && it.state == PoolState::Up)
        };
        // One that is absent would be locked while it is examined, and could not be opened. One that hangs
        // would keep a thread.
        let mut config = self.config.clone();
        config.pools.retain(is_up);
        let left_out = self.all_pools.saturating_sub(config.pools.len());
        let mut state = lock(&self.state);
        let is_due =
            state.last.as_ref().is_none_or(|last| last.ended.elapsed() >= EXAMINATION_INTERVAL);
        if state.is_examining || !is_due || config.pools.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.state);
        let examine = move || {
            let under_way = UnderWay(shared);
            let examined = examined(&config, left_out);
            lock(&under_way.0).last = Some(examined);
        };
        match thread::Builder::new().name("doctor".to_owned()).spawn(examine) {
            Ok(_) => state.is_examining = true,
            Err(error) => tracing::debug!(%error, "cannot start a thread to examine the pools"),
        }
    }
}

fn examined(config: &Config, left_out: usize) -> Examined {
    let examination = Examination::of(config, left_out, None, |_| {});
    let mut findings = BTreeMap::new();
    for found in &examination.findings {
        let pool = found.pool.clone().unwrap_or_default();
        *findings.entry((pool, found.finding.code)).or_insert(0) += 1;
    }
    for what in &examination.not_examined {
        tracing::debug!(what, "the doctor could not examine all");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Examined {
        ended: Instant::now(),
        timestamp: now.as_secs_f64(),
        findings,
        unexamined: examination.not_examined.len(),
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
