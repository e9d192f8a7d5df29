//! `/metrics`: what is counted and measured, as OpenMetrics text. All of it is gathered when it is asked
//! for, and nothing waits for a pool that hangs. docs/metrics.md has the table of all names.

mod calls;
mod doctor;
mod family;
mod peers;
mod pools;
mod process;
mod trend;
mod volumes;

use std::sync::{Arc, Mutex};

use orlop_csi::Executor;
use orlop_engine::Engine;
use tokio::sync::Semaphore;

use crate::cluster::PeerStatus;
use crate::config::Config;
use crate::telemetry;
use doctor::DoctorMetrics;
use family::{Family, Kind};
use trend::Trends;

/// What does not change while the daemon runs.
#[derive(Clone)]
pub(crate) struct About {
    pub(crate) version: String,
    pub(crate) driver: String,
    pub(crate) mode: &'static str,
    pub(crate) node: String,
    /// May the names of volumes be shown?
    pub(crate) volumes: bool,
}

pub(crate) struct Metrics {
    about: About,
    executor: Arc<Executor>,
    /// `None`: the daemon has no peers.
    peers: Option<PeerStatus>,
    trends: Mutex<Trends>,
    doctor: DoctorMetrics,
    /// How many clients may be answered at once.
    pub(crate) scrapes: Arc<Semaphore>,
}

/// Two Prometheus servers and a person.
const SCRAPES: usize = 4;

impl Metrics {
    /// `config` is for the doctor, which examines the pools now and then.
    pub(crate) fn new(
        about: About,
        executor: Arc<Executor>,
        peers: Option<PeerStatus>,
        config: &Config,
    ) -> Self {
        let scrapes = Arc::new(Semaphore::new(SCRAPES));
        let doctor = DoctorMetrics::new(config);
        Self { about, executor, peers, trends: Mutex::default(), doctor, scrapes }
    }

    /// Takes as long as the slowest pool, and a few seconds at most; on a thread that may wait.
    pub(crate) fn gather(&self) -> Result<String, std::fmt::Error> {
        let engine = self.executor.engine().ok();
        let engine = engine.as_deref();
        let mut all = vec![self.build_info()];
        all.extend(process::families());
        all.push(
            Family::new("orlop_log_lines_dropped", Kind::Counter, LOG_LINES_DROPPED)
                .with(&[], telemetry::dropped_lines()),
        );
        all.push(spans_dropped());
        all.extend(calls::families(&self.executor, engine));
        let pools = engine.map(Engine::pool_figures).unwrap_or_default();
        all.extend(pools::families(&pools, &self.trends));
        all.extend(self.doctor.families(&pools));
        all.extend(freezes(engine));
        all.extend(volumes::families(engine.filter(|_| self.about.volumes)));
        all.extend(peers::families(self.peers.as_ref()));
        family::encode(all)
    }

    fn build_info(&self) -> Family {
        let labels = [
            ("version", self.about.version.as_str()),
            ("driver", &self.about.driver),
            ("mode", self.about.mode),
            ("node", &self.about.node),
        ];
        Family::new(
            "orlop_build_info",
            Kind::Gauge,
            "The version, driver, mode and node of the daemon",
        )
        .with(&labels, 1_u64)
    }
}

/// Without a sample unless spans are exported.
fn spans_dropped() -> Family {
    let family = Family::new(
        "orlop_trace_spans_dropped",
        Kind::Counter,
        "Spans that were dropped: the queue was full, or the collector did not accept them",
    );
    #[cfg(feature = "otel")]
    if let Some(dropped) = crate::span_export::dropped_spans() {
        return family.with(&[], dropped);
    }
    family
}

const LOG_LINES_DROPPED: &str = "Log lines that were dropped because stderr was not read";

fn freezes(engine: Option<&Engine>) -> Option<Family> {
    let help = "For how long filesystems were frozen for snapshots and clones";
    let family = Family::new("orlop_freeze_duration_seconds", Kind::Histogram, help);
    Some(match engine {
        Some(engine) => family.with_durations(&[], engine.freeze_durations()),
        None => family,
    })
}
