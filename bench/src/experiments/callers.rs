//! Creations a second with several callers, and memory under that load.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orlop_sys::loopdev::{self, LoopDevice};
use orlop_tests::MIB;

use crate::Effort;
use crate::baseline;
use crate::concurrent::{self, VolumeBatch};
use crate::driver::{Driver, Kind};
use crate::process::{self, Process};
use crate::results::{Circumstance, Results, Row, Unit};
use crate::series::Series;
use crate::testbed::{Drivers, Testbed};

const SIZE: u64 = 16 * MIB;
const CALLERS: [u64; 3] = [1, 16, 64];
const DELETERS: usize = 16;
const POLL_INTERVAL: Duration = Duration::from_millis(2);
pub(crate) const CREATIONS: &str = "creations a second, block";

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    let before = loop_devices();
    {
        let testbed = Testbed::new(drivers).await;
        results.begin(
            "Several callers",
            "Block volumes of 16 MiB, created at the same time. Orlop's are durable when the call \
             returns, host-path's are not. The floor is as many threads that make a file, fsync \
             it, rename it and fsync the directory.",
        );
        for callers in CALLERS {
            measure(&testbed, callers, effort, results).await;
        }
    }
    // Otherwise every program that lists loop devices has to skip these until the next boot.
    for device in loop_devices().difference(&before) {
        if let Some(device) = LoopDevice::from_path(&Path::new("/dev").join(device)) {
            let _ = loopdev::forget(&device);
        }
    }
}

async fn measure(testbed: &Testbed, callers: u64, effort: Effort, results: &mut Results) {
    let count = effort.of(callers.clamp(4, 16) * 8, callers.min(16) * 2).max(callers);
    let directory = testbed.directory("bare");
    let mut rates = [Series::default(), Series::default(), Series::default()];
    let mut peaks = [Series::default(), Series::default()];
    for round in 0..=effort.of(5, 1) {
        for (index, driver) in [&testbed.ours, &testbed.peer].into_iter().enumerate() {
            testbed.settle();
            let load = load(driver, round, count, callers).await;
            if round > 0 {
                rates[index].push(load.rate);
                load.peak.into_iter().for_each(|peak| peaks[index].push(peak));
            }
        }
        testbed.settle();
        let took = baseline::creations(&directory, count, callers, SIZE);
        if round > 0 {
            rates[2].push(rate(count, took));
        }
    }
    let with = Circumstance::Callers(callers);
    let row = |operation: &str, unit, ours: Series, peer: Series, floor| Row {
        operation: operation.to_owned(),
        with,
        unit,
        ours: Some(ours).filter(|series| !series.is_empty()),
        peer: Some(peer).filter(|series| !series.is_empty()),
        floor,
        note: None,
    };
    let [ours, peer, floor] = rates;
    results.add(row(CREATIONS, Unit::Rate, ours, peer, Some(floor)));
    let [ours, peer] = peaks;
    results.add(row("resident memory meanwhile, at most", Unit::Bytes, ours, peer, None));
}

struct Load {
    rate: f64,
    /// Of its memory.
    peak: Option<f64>,
}

async fn load(driver: &Driver, round: usize, count: u64, callers: u64) -> Load {
    let batch = VolumeBatch {
        prefix: format!("callers-{callers}-{round}"),
        kind: Kind::Block,
        bytes: SIZE,
        from: 0,
        to: count,
    };
    let watch = driver.process.as_ref().map(Process::pid).map(Watch::new);
    let began = Instant::now();
    let ids = concurrent::create(driver, &batch, callers, None).await;
    let rate = rate(count, began.elapsed());
    let peak = watch.map(Watch::end);
    concurrent::delete(driver, ids, DELETERS).await;
    Load { rate, peak }
}

fn rate(count: u64, took: Duration) -> f64 {
    f64::from(u32::try_from(count).expect("a small count")) / took.as_secs_f64()
}

/// Looks at a process's memory again and again.
struct Watch {
    over: Arc<AtomicBool>,
    looking: JoinHandle<u64>,
}

impl Watch {
    fn new(pid: u32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let looking = std::thread::spawn(move || {
            let mut most = process::resident(pid);
            while !ended.load(Ordering::Relaxed) {
                most = most.max(process::resident(pid));
                std::thread::sleep(POLL_INTERVAL);
            }
            most
        });
        Self { over, looking }
    }

    fn end(self) -> f64 {
        self.over.store(true, Ordering::Relaxed);
        let most = self.looking.join().expect("a look at its memory");
        f64::from(u32::try_from(most / 1024).expect("less than 4 TiB")) * 1024.0
    }
}

fn loop_devices() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/sys/block").expect("list block devices");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("loop")).collect()
}
