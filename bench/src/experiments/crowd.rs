//! Calls, memory and a cold start with many volumes present.

use std::time::{Duration, Instant};

use orlop_tests::MIB;

use super::{copies, life};
use crate::Effort;
use crate::bare::{self, Bare};
use crate::contender::{Contender, Kind};
use crate::ground::{Drivers, Ground};
use crate::many::{self, Crowd};
use crate::process::Process;
use crate::results::{Circumstance, Results, Row, Unit, grouped};
use crate::series::Series;
use crate::stopwatch::Times;

const CALLERS: u64 = 16;
const SIZE: u64 = 16 * MIB;
/// What a driver needs for itself from time to time is not what it needs with so many volumes.
const REST: Duration = Duration::from_secs(12);

pub(crate) const SIDE_BY_SIDE: &str = "create, block, few and many in turns";

/// What is told of a life among many.
const OPERATIONS: [(&str, &[&str]); 4] = [
    ("create", &["create"]),
    ("stage + publish", &["stage", "publish"]),
    ("unpublish + unstage", &["unpublish", "unstage"]),
    ("delete", &["delete"]),
];

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    let mut ground = Ground::new(drivers).await;
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
    results.add(binary_size(&ground));
    idle_memory(&mut ground, results).await;
    let bare = Bare::new(&ground, life::SIZE);
    let levels = effort.of([10, 1000, 10_000], [10, 50, 200]);
    let mut present = Present::default();
    for level in levels {
        present.grow(&ground, level, effort).await;
        measure(&ground, &bare, level, effort, &present, results).await;
    }
    side_by_side(drivers, (&ground, &bare, &present), levels, effort, results).await;
    let with = Circumstance::Volumes(levels[2]);
    tokio::time::sleep(effort.of(REST, REST / 2)).await;
    results.add(present.noted(memory(
        &ground,
        "resident memory, all created since the start",
        with,
    )));
    cold_starts(&mut ground, with, effort, &present, results).await;
    results.add(present.noted(memory(&ground, "resident memory, after a cold start", with)));
}

fn binary_size(ground: &Ground) -> Row {
    let size = |contender: &Contender| Some(bytes(contender.process.as_ref()?.binary_size()));
    Row {
        operation: "size of the binary".to_owned(),
        with: Circumstance::Usual,
        unit: Unit::Bytes,
        ours: size(&ground.ours),
        peer: size(&ground.peer),
        floor: None,
        note: None,
    }
}

async fn idle_memory(ground: &mut Ground, results: &mut Results) {
    ground.ours.restart().await;
    ground.peer.restart().await;
    results.add(memory(ground, "resident memory, idle", Circumstance::Usual));
}

pub(crate) fn memory(ground: &Ground, operation: &str, with: Circumstance) -> Row {
    let resident = |contender: &Contender| contender.process.as_ref().map(Process::memory);
    Row {
        operation: operation.to_owned(),
        with,
        unit: Unit::Bytes,
        ours: resident(&ground.ours).map(bytes),
        peer: resident(&ground.peer).map(bytes),
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
    async fn grow(&mut self, ground: &Ground, level: u64, effort: Effort) {
        let crowd =
            |kind, from| Crowd { prefix: "crowd".to_owned(), kind, bytes: SIZE, from, to: level };
        let missing = crowd(Kind::Block, self.ours);
        let created = many::create(&ground.ours, &missing, CALLERS, None).await;
        self.ours += count(&created);
        let deadline = Instant::now() + Duration::from_secs(effort.of(60, 10));
        let missing = crowd(Kind::Mount, self.peer);
        let created = many::create(&ground.peer, &missing, CALLERS, Some(deadline)).await;
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
    ground: &Ground,
    bare: &Bare,
    level: u64,
    effort: Effort,
    present: &Present,
    results: &mut Results,
) {
    let with = Circumstance::Volumes(level);
    for kind in [Kind::Block, Kind::Mount] {
        let times = life::lives(ground, bare, kind, effort.of(25, 3)).await;
        for (operation, parts) in OPERATIONS {
            let operation = format!("{operation}, {}", kind.name());
            results.add(present.noted(times.row(operation, parts, with)));
        }
    }
    let times = copies(ground, bare, effort).await;
    for operation in copies::OPERATIONS {
        let title = format!("{operation} of an empty volume");
        results.add(present.noted(times.row(title, &[operation], with)));
    }
    let times = lists(ground, effort).await;
    results.add(present.noted(times.row("list".into(), &["list"], with)));
    let times = life::probes(ground, effort).await;
    results.add(present.noted(times.row("Probe".into(), &["Probe"], with)));
}

/// The disk's speed changes by the minute, and it takes minutes to create so many volumes: few and
/// many of them are compared on two filesystems, in turns.
async fn side_by_side(
    drivers: &Drivers,
    (many, bare_many, present): (&Ground, &Bare, &Present),
    levels: [u64; 3],
    effort: Effort,
    results: &mut Results,
) {
    let few = Ground::new(drivers).await;
    let bare_few = Bare::new(&few, life::SIZE);
    let mut few_present = Present::default();
    few_present.grow(&few, levels[0], effort).await;
    let (mut with_few, mut with_many) = (Times::default(), Times::default());
    for round in 0..life::WARM_UP + effort.of(50, 3) {
        if round == life::WARM_UP {
            (with_few, with_many) = (Times::default(), Times::default());
        }
        let what = (Kind::Block, round);
        if round % 2 == 0 {
            life::one(&few, &bare_few, what, &mut with_few).await;
            life::one(many, bare_many, what, &mut with_many).await;
        } else {
            life::one(many, bare_many, what, &mut with_many).await;
            life::one(&few, &bare_few, what, &mut with_few).await;
        }
    }
    let sides = [(with_few, &few_present, levels[0]), (with_many, present, levels[2])];
    for (times, present, level) in sides {
        let row = times.row(SIDE_BY_SIDE.to_owned(), &["create"], Circumstance::Volumes(level));
        results.add(present.noted(row));
    }
}

async fn copies(ground: &Ground, bare: &Bare, effort: Effort) -> Times {
    let mut times = Times::default();
    let ours = ground.ours.create("source", Kind::Block, SIZE).done().await.volume_id;
    let peer = ground.peer.create("source", Kind::Block, SIZE).done().await.volume_id;
    let source = bare.scratch_file();
    let empty = bare::create_sized(&source, SIZE);
    for round in 0..effort.of(15, 3) {
        let (ours, peer) = ((Kind::Block, SIZE, &*ours), (Kind::Block, SIZE, &*peer));
        copies::copies(ground, &ground.ours, ours, round, &mut times.ours).await;
        copies::copies(ground, &ground.peer, peer, round, &mut times.peer).await;
        copies::bare_copies(ground, bare, &empty, &mut times.floor);
    }
    std::fs::remove_file(&source).expect("unlink the source");
    ground.ours.client.delete(&ours).await.expect("delete the source");
    ground.peer.client.delete(&peer).await.expect("delete the source");
    times
}

async fn lists(ground: &Ground, effort: Effort) -> Times {
    let mut times = Times::default();
    let volumes = ground.volumes();
    for _ in 0..effort.of(15, 3) {
        assert!(times.ours.call("list", ground.ours.list()).await > 0, "an empty list");
        assert!(times.peer.call("list", ground.peer.list()).await > 0, "an empty list");
        times.floor.run("list", || bare::look_at_all(&volumes));
    }
    times
}

async fn cold_starts(
    ground: &mut Ground,
    with: Circumstance,
    effort: Effort,
    present: &Present,
    results: &mut Results,
) {
    let mut times = Times::default();
    for _ in 0..effort.of(6, 2) {
        if let Some(took) = ground.ours.restart().await {
            times.ours.add("cold start", took.as_secs_f64());
        }
        if let Some(took) = ground.peer.restart().await {
            times.peer.add("cold start", took.as_secs_f64());
        }
        times.floor.run("cold start", || bare::read_all(&ground.volumes()));
    }
    results.add(present.noted(times.row("cold start".into(), &["cold start"], with)));
}
