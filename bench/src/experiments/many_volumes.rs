//! Calls, memory and a cold start with many volumes present.

use std::time::{Duration, Instant};

use orlop_tests::MIB;

use super::{copies, lifecycle};
use crate::Effort;
use crate::baseline::{self, Baseline};
use crate::concurrent::{self, VolumeBatch};
use crate::driver::{Driver, Kind};
use crate::process::Process;
use crate::results::{Circumstance, Results, Row, Unit, grouped};
use crate::series::Series;
use crate::stopwatch::Times;
use crate::testbed::{Drivers, Testbed};

const CALLERS: u64 = 16;
const SIZE: u64 = 16 * MIB;
/// What a driver needs for itself from time to time is not what it needs with so many volumes.
const REST: Duration = Duration::from_secs(12);

pub(crate) const SIDE_BY_SIDE: &str = "create, block, few and many in turns";

/// The operations that are reported with many volumes present.
const OPERATIONS: [(&str, &[&str]); 4] = [
    ("create", &["create"]),
    ("stage + publish", &["stage", "publish"]),
    ("unpublish + unstage", &["unpublish", "unstage"]),
    ("delete", &["delete"]),
];

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    let mut testbed = Testbed::new(drivers).await;
    results.begin(
        "Many volumes",
        "With this many volumes present, created through the socket by 16 callers: sparse block \
         volumes of Orlop, and directories of host-path, because each of its block volumes holds \
         a loop device from its creation on, and thousands of those would slow everyone down. The \
         floor of a list is a stat of each volume's data; that of a cold start, from the first \
         instruction to the answer that it is ready, is to read each record and stat its data. What \
         the kernel has read before is in its caches. Memory is looked at twelve seconds after the \
         last call.",
    );
    results.add(binary_size(&testbed));
    idle_memory(&mut testbed, results).await;
    let baseline = Baseline::new(&testbed, lifecycle::SIZE);
    let levels = effort.of([10, 1000, 10_000], [10, 50, 200]);
    let mut present = Present::default();
    for level in levels {
        present.grow(&testbed, level, effort).await;
        measure(&testbed, &baseline, level, effort, &present, results).await;
    }
    side_by_side(drivers, (&testbed, &baseline, &present), levels, effort, results).await;
    let with = Circumstance::Volumes(levels[2]);
    tokio::time::sleep(effort.of(REST, REST / 2)).await;
    results.add(present.noted(memory(
        &testbed,
        "resident memory, all created since the start",
        with,
    )));
    cold_starts(&mut testbed, with, effort, &present, results).await;
    results.add(present.noted(memory(&testbed, "resident memory, after a cold start", with)));
}

fn binary_size(testbed: &Testbed) -> Row {
    let size = |driver: &Driver| Some(bytes(driver.process.as_ref()?.binary_size()));
    Row {
        operation: "size of the binary".to_owned(),
        with: Circumstance::Usual,
        unit: Unit::Bytes,
        ours: size(&testbed.ours),
        peer: size(&testbed.peer),
        floor: None,
        note: None,
    }
}

async fn idle_memory(testbed: &mut Testbed, results: &mut Results) {
    testbed.ours.restart().await;
    testbed.peer.restart().await;
    results.add(memory(testbed, "resident memory, idle", Circumstance::Usual));
}

pub(crate) fn memory(testbed: &Testbed, operation: &str, with: Circumstance) -> Row {
    let resident = |driver: &Driver| driver.process.as_ref().map(Process::memory);
    Row {
        operation: operation.to_owned(),
        with,
        unit: Unit::Bytes,
        ours: resident(&testbed.ours).map(bytes),
        peer: resident(&testbed.peer).map(bytes),
        floor: None,
        note: None,
    }
}

fn bytes(count: u64) -> Series {
    // In units that a float holds exactly.
    let kibibytes = u32::try_from(count / 1024).expect("less than 4 TiB");
    Series::of([f64::from(kibibytes) * 1024.0])
}

/// How many volumes each of them has.
#[derive(Default)]
struct Present {
    ours: u64,
    peer: u64,
    /// What the peer was to have; it is left behind if it needs too long.
    wanted: u64,
}

impl Present {
    async fn grow(&mut self, testbed: &Testbed, level: u64, effort: Effort) {
        let batch = |kind, from| VolumeBatch {
            prefix: "crowd".to_owned(),
            kind,
            bytes: SIZE,
            from,
            to: level,
        };
        let missing = batch(Kind::Block, self.ours);
        let created = concurrent::create(&testbed.ours, &missing, CALLERS, None).await;
        self.ours += count(&created);
        let deadline = Instant::now() + Duration::from_secs(effort.of(60, 10));
        let missing = batch(Kind::Mount, self.peer);
        let created = concurrent::create(&testbed.peer, &missing, CALLERS, Some(deadline)).await;
        self.peer += count(&created);
        self.wanted = level;
        println!("{} and {} volumes are there", self.ours, self.peer);
    }

    fn noted(&self, row: Row) -> Row {
        match self.peer < self.wanted {
            true => row.noting(format!("the peer had {} volumes by then", grouped(self.peer))),
            false => row,
        }
    }
}

fn count(ids: &[String]) -> u64 {
    u64::try_from(ids.len()).expect("a count")
}

async fn measure(
    testbed: &Testbed,
    baseline: &Baseline,
    level: u64,
    effort: Effort,
    present: &Present,
    results: &mut Results,
) {
    let with = Circumstance::Volumes(level);
    for kind in [Kind::Block, Kind::Mount] {
        let times = lifecycle::lifecycles(testbed, baseline, kind, effort.of(25, 3)).await;
        for (operation, parts) in OPERATIONS {
            let operation = format!("{operation}, {}", kind.name());
            results.add(present.noted(times.row(operation, parts, with)));
        }
    }
    let times = copies(testbed, baseline, effort).await;
    for operation in copies::OPERATIONS {
        let title = format!("{operation} of an empty volume");
        results.add(present.noted(times.row(title, &[operation], with)));
    }
    let times = lists(testbed, effort).await;
    results.add(present.noted(times.row("list".into(), &["list"], with)));
    let times = lifecycle::probes(testbed, effort).await;
    results.add(present.noted(times.row("Probe".into(), &["Probe"], with)));
}

/// The disk's speed changes by the minute, and it takes minutes to create so many volumes: few and
/// many of them are compared on two filesystems, in turns.
async fn side_by_side(
    drivers: &Drivers,
    (many, baseline_many, present): (&Testbed, &Baseline, &Present),
    levels: [u64; 3],
    effort: Effort,
    results: &mut Results,
) {
    let few = Testbed::new(drivers).await;
    let baseline_few = Baseline::new(&few, lifecycle::SIZE);
    let mut few_present = Present::default();
    few_present.grow(&few, levels[0], effort).await;
    let (mut with_few, mut with_many) = (Times::default(), Times::default());
    for round in 0..lifecycle::WARM_UP + effort.of(50, 3) {
        if round == lifecycle::WARM_UP {
            (with_few, with_many) = (Times::default(), Times::default());
        }
        let what = (Kind::Block, round);
        if round % 2 == 0 {
            lifecycle::one(&few, &baseline_few, what, &mut with_few).await;
            lifecycle::one(many, baseline_many, what, &mut with_many).await;
        } else {
            lifecycle::one(many, baseline_many, what, &mut with_many).await;
            lifecycle::one(&few, &baseline_few, what, &mut with_few).await;
        }
    }
    let sides = [(with_few, &few_present, levels[0]), (with_many, present, levels[2])];
    for (times, present, level) in sides {
        let row = times.row(SIDE_BY_SIDE.to_owned(), &["create"], Circumstance::Volumes(level));
        results.add(present.noted(row));
    }
}

async fn copies(testbed: &Testbed, baseline: &Baseline, effort: Effort) -> Times {
    let mut times = Times::default();
    let ours = testbed.ours.create("source", Kind::Block, SIZE).done().await.volume_id;
    let peer = testbed.peer.create("source", Kind::Block, SIZE).done().await.volume_id;
    let source = baseline.scratch_file();
    let empty = baseline::create_sized(&source, SIZE);
    for round in 0..effort.of(15, 3) {
        let (ours, peer) = ((Kind::Block, SIZE, &*ours), (Kind::Block, SIZE, &*peer));
        copies::copies(testbed, &testbed.ours, ours, round, &mut times.ours).await;
        copies::copies(testbed, &testbed.peer, peer, round, &mut times.peer).await;
        copies::baseline_copies(testbed, baseline, &empty, &mut times.floor);
    }
    std::fs::remove_file(&source).expect("unlink the source");
    testbed.ours.client.delete(&ours).await.expect("delete the source");
    testbed.peer.client.delete(&peer).await.expect("delete the source");
    times
}

async fn lists(testbed: &Testbed, effort: Effort) -> Times {
    let mut times = Times::default();
    let volumes = testbed.volumes();
    for _ in 0..effort.of(15, 3) {
        assert!(times.ours.call("list", testbed.ours.list()).await > 0, "an empty list");
        assert!(times.peer.call("list", testbed.peer.list()).await > 0, "an empty list");
        times.floor.run("list", || baseline::look_at_all(&volumes));
    }
    times
}

async fn cold_starts(
    testbed: &mut Testbed,
    with: Circumstance,
    effort: Effort,
    present: &Present,
    results: &mut Results,
) {
    let mut times = Times::default();
    for _ in 0..effort.of(6, 2) {
        if let Some(took) = testbed.ours.restart().await {
            times.ours.add("cold start", took.as_secs_f64());
        }
        if let Some(took) = testbed.peer.restart().await {
            times.peer.add("cold start", took.as_secs_f64());
        }
        times.floor.run("cold start", || baseline::read_all(&testbed.volumes()));
    }
    results.add(present.noted(times.row("cold start".into(), &["cold start"], with)));
}
