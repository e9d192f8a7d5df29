//! Snapshot, restore and clone of volumes that hold data.

use std::fs::File;
use std::path::Path;

use orlop_tests::{GIB, MIB};

use crate::Effort;
use crate::baseline::{self, Baseline};
use crate::driver::{Driver, Kind};
use crate::results::{Circumstance, Results, binary_size};
use crate::stopwatch::{Stopwatch, Times};
use crate::testbed::{Drivers, Testbed};

pub(crate) const OPERATIONS: [&str; 3] = ["snapshot", "restore", "clone"];

/// Seconds that a driver which copies byte by byte gets for one size; the round under way is
/// finished.
const TIMEOUT: f64 = 12.0;

struct Case {
    kind: Kind,
    data: u64,
    samples: usize,
    /// More data than this is filled in by sharing the extents of so much, again and again: what
    /// is measured is the copy, and the disk need not hold three sources.
    seed: u64,
}

impl Case {
    fn shares_seed(&self) -> bool {
        self.kind == Kind::Block && self.data > self.seed
    }

    /// Sources, one copy of a driver that shares nothing, and room to breathe.
    fn room(&self) -> u64 {
        if self.shares_seed() { self.seed + self.data * 3 / 2 } else { self.data * 5 }
    }

    /// A filesystem needs some for itself.
    fn size(&self) -> u64 {
        match self.kind {
            Kind::Block => self.data,
            Kind::Mount => self.data + self.data / 8 + 64 * MIB,
        }
    }
}

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    results.begin(
        "Copies",
        "Of volumes that hold this much data and are not in use. host-path copies with cp, dd and \
         tar and does not fsync; since coreutils 9, cp shares extents where it can, so on XFS its \
         snapshot of a block volume and its clone of a mount volume are reflinks too, for the price \
         of starting a program. The floor is a new file, FICLONE of the same data, fsync, rename and \
         fsync of the directory; on XFS Orlop needs the last fsync alone, as does a row of the bare \
         calls. 10 GiB are measured for block volumes alone, and are ten times the same GiB on the \
         disk.",
    );
    let seed = effort.of(GIB, 8 * MIB);
    let case = |kind, data, samples| Case { kind, data, samples, seed };
    let cases = effort.of(
        vec![
            case(Kind::Block, 64 * MIB, 50),
            case(Kind::Block, GIB, 50),
            case(Kind::Block, 10 * GIB, 20),
            case(Kind::Mount, 64 * MIB, 25),
            case(Kind::Mount, GIB, 50),
        ],
        vec![
            case(Kind::Block, 8 * MIB, 3),
            case(Kind::Block, 32 * MIB, 3),
            case(Kind::Mount, 8 * MIB, 3),
            case(Kind::Mount, 32 * MIB, 3),
        ],
    );
    for case in cases {
        measure(drivers, &case, results).await;
    }
}

async fn measure(drivers: &Drivers, case: &Case, results: &mut Results) {
    let testbed = Testbed::new(drivers).await;
    let room = case.room();
    assert!(testbed.room() > room, "the disk has no room for {}", binary_size(room));
    let baseline = Baseline::new(&testbed, GIB);
    let source = testbed.directory("source").join("data");
    let (ours, peer, source) = if case.shares_seed() {
        let seed = baseline::filled_image(&baseline.scratch_file(), case.seed);
        let ours = sharing(&testbed.ours, case, &seed).await;
        let peer = sharing(&testbed.peer, case, &seed).await;
        let file = baseline::create_sized(&source, case.data);
        baseline::fill_sharing(&source, case.data, &seed);
        (ours, peer, file)
    } else {
        let ours = filled(&testbed.ours, case).await;
        let peer = filled(&testbed.peer, case).await;
        let file = same_extents(&testbed.ours, &ours, &source);
        (ours, peer, file.unwrap_or_else(|| baseline::filled_image(&source, case.data)))
    };

    let mut times = Times::default();
    for round in 0..=case.samples {
        // The first is a warm-up, but a slow one counts: there may be no second.
        if round == 1 && !is_slow(&times.peer) {
            times = Times::default();
        }
        let (kind, size) = (case.kind, case.size());
        copies(&testbed, &testbed.ours, (kind, size, &ours), round, &mut times.ours).await;
        if !is_slow(&times.peer) {
            copies(&testbed, &testbed.peer, (kind, size, &peer), round, &mut times.peer).await;
            testbed.settle();
            testbed.trim();
        }
        baseline_copies(&testbed, &baseline, &source, &mut times.floor);
    }
    for operation in OPERATIONS {
        let title = format!("{operation}, {}", case.kind.name());
        results.add(times.row(title, &[operation], Circumstance::Data(case.data)));
    }
    release(&testbed.ours, &ours).await;
    release(&testbed.peer, &peer).await;
}

fn is_slow(watch: &Stopwatch) -> bool {
    watch.sum(&OPERATIONS).is_some_and(|spent| spent.total() > TIMEOUT)
}

/// The id of a volume with the case's data.
async fn filled(driver: &Driver, case: &Case) -> String {
    let volume = driver.create("source", case.kind, case.size()).done().await;
    let node = driver.client.on_node(&volume, case.kind.capability());
    let mut unwatched = Stopwatch::default();
    driver.up(&node, &mut unwatched).await;
    baseline::fill(&node.data_path(), case.data);
    driver.down(&node, &mut unwatched).await;
    node.id
}

/// What sharing costs depends on the number of extents, and a filesystem scatters them.
fn same_extents(driver: &Driver, volume: &str, copy: &Path) -> Option<File> {
    let original = File::open(driver.volume_file(volume)?).expect("open a volume's data");
    let copy = baseline::create_sized(copy, 0);
    baseline::clone(&original, &copy);
    Some(copy)
}

async fn sharing(driver: &Driver, case: &Case, seed: &File) -> String {
    let volume = driver.create("source", case.kind, case.size()).done().await.volume_id;
    match driver.volume_file(&volume) {
        Some(file) => {
            baseline::fill_sharing(&file, case.data, seed);
            volume
        }
        None => {
            driver.client.delete(&volume).await.expect("delete a volume");
            filled(driver, case).await
        }
    }
}

async fn release(driver: &Driver, volume: &str) {
    driver.client.delete(volume).await.expect("delete the source");
}

/// One of each, gone again afterwards: host-path keeps one snapshot of a volume.
pub(crate) async fn copies(
    testbed: &Testbed,
    driver: &Driver,
    (kind, size, source): (Kind, u64, &str),
    round: usize,
    watch: &mut Stopwatch,
) {
    let client = &driver.client;
    let name = format!("copy-{round}");
    testbed.settle();
    let snapshot = watch.call("snapshot", client.snapshot(&name, source)).await.snapshot_id;
    testbed.settle();
    let restore = driver.create(&name, kind, size).from_snapshot(&snapshot);
    let restored = watch.call("restore", restore.send()).await.volume_id;
    client.delete(&restored).await.expect("delete a restored volume");
    client.delete_snapshot(&snapshot).await.expect("delete a snapshot");
    testbed.settle();
    let clone = driver.create(&name, kind, size).from_volume(source);
    let cloned = watch.call("clone", clone.send()).await.volume_id;
    client.delete(&cloned).await.expect("delete a clone");
}

pub(crate) fn baseline_copies(
    testbed: &Testbed,
    baseline: &Baseline,
    source: &File,
    watch: &mut Stopwatch,
) {
    for operation in OPERATIONS {
        testbed.settle();
        baseline.copy(source, operation, watch);
    }
}
