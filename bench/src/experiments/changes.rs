//! Which blocks a snapshot holds, and which differ from an earlier one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use orlop_sys::extents::{self, ExtentKind};
use orlop_tests::{GIB, MIB, Rng};
use rustix::fs::{Advice, fadvise};

use crate::Effort;
use crate::baseline;
use crate::delta;
use crate::driver::{Driver, Kind};
use crate::results::{Circumstance, Results};
use crate::stopwatch::{Stopwatch, Times};
use crate::testbed::{Drivers, Testbed};

const BLOCK: usize = 4096;
const CHUNK: usize = 1 << 20;
/// As the targets call them: what databases do, and what files do.
pub(crate) const DELTA: [&str; 2] =
    ["delta, 1 % changed, blocks of 4 KiB", "delta, 1 % changed, pieces of 64 KiB"];
const ALLOCATED: &str = "allocated";

/// Where a volume was changed.
struct Pattern {
    piece: usize,
    name: &'static str,
    name_if_cached: &'static str,
}

const PATTERNS: [Pattern; 2] = [
    Pattern {
        piece: BLOCK,
        name: DELTA[0],
        name_if_cached: "delta, 1 % changed, blocks of 4 KiB, files in the page cache",
    },
    Pattern {
        piece: 64 << 10,
        name: DELTA[1],
        name_if_cached: "delta, 1 % changed, pieces of 64 KiB, files in the page cache",
    },
];

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    let size = effort.of(GIB, 16 * MIB);
    for pattern in &PATTERNS {
        let testbed = Testbed::new(drivers).await;
        if pattern.piece == BLOCK {
            results.begin("Changed blocks", about(&testbed.peer));
        }
        let times = measure(&testbed, pattern, size, effort).await;
        for operation in [pattern.name, pattern.name_if_cached, ALLOCATED] {
            // What is allocated does not depend on what has changed, but for its scatter.
            let is_reported = pattern.piece == BLOCK || operation != ALLOCATED;
            if is_reported && times.ours.series(operation).is_some() {
                results.add(times.row(operation.into(), &[operation], Circumstance::Data(size)));
            }
        }
    }
}

async fn measure(testbed: &Testbed, pattern: &Pattern, size: u64, effort: Effort) -> Times {
    let ours = Pair::new(&testbed.ours, pattern, size).await;
    let peer = Pair::new(&testbed.peer, pattern, size).await;
    let baseline = baseline_pair(testbed, pattern, size);

    let mut times = Times::default();
    for round in 0..=effort.of(25, 3) {
        if round == 1 {
            times = Times::default();
        }
        ours.ask(&testbed.ours, pattern, &mut times.ours).await;
        if round <= effort.of(5, 2) {
            peer.ask(&testbed.peer, pattern, &mut times.peer).await;
        }
        times.floor.run(pattern.name, || walk(&baseline.0) + walk(&baseline.1));
        times.floor.run(ALLOCATED, || walk(&baseline.1));
    }
    if !testbed.peer.tells_changes {
        // The same question, however the other side comes by its answer.
        let asked = [&times.ours, &times.floor].map(|watch| watch.series(pattern.name));
        let [ours, floor] = asked.map(Option::unwrap_or_default);
        times.ours.set(pattern.name_if_cached, ours);
        times.floor.set(pattern.name_if_cached, floor);
    }
    ours.release(&testbed.ours).await;
    peer.release(&testbed.peer).await;
    times
}

fn about(peer: &Driver) -> String {
    let how = match peer.tells_changes {
        true => "The peer is asked by GetMetadataDelta as well.",
        false => {
            "This release of host-path has no SnapshotMetadata service. Its column is what its \
             user has to do instead: read both snapshots and compare them block by block, first \
             with nothing of them in the page cache, as after a snapshot was taken."
        }
    };
    format!(
        "A full block volume, of which 1 % was changed between two snapshots, in places all over \
         it. {how} The floor is FIEMAP of both files: the kernel looks up for each extent whether \
         it is shared, so it costs by the number of extents, not by the size."
    )
}

/// Two snapshots of one volume.
struct Pair {
    volume: String,
    base: String,
    target: String,
}

impl Pair {
    async fn new(driver: &Driver, pattern: &Pattern, size: u64) -> Self {
        let client = &driver.client;
        let volume = driver.create("changing", Kind::Block, size).done().await;
        let node = client.on_node(&volume, Kind::Block.capability());
        let mut unwatched = Stopwatch::default();
        driver.up(&node, &mut unwatched).await;
        baseline::fill(&node.target, size);
        let base = client.snapshot("base", &node.id).await.expect("a snapshot").snapshot_id;
        change(&node.target, pattern, size);
        let target = client.snapshot("target", &node.id).await.expect("a snapshot").snapshot_id;
        driver.down(&node, &mut unwatched).await;
        Self { volume: node.id, base, target }
    }

    async fn ask(&self, driver: &Driver, pattern: &Pattern, watch: &mut Stopwatch) {
        let client = &driver.client;
        if driver.tells_changes {
            let counted = async { Ok(delta::delta(client, &self.base, &self.target).await) };
            assert!(watch.call(pattern.name, counted).await > 0, "nothing has changed");
            let counted = async { Ok(delta::allocated(client, &self.target).await) };
            assert!(watch.call(ALLOCATED, counted).await > 0, "nothing is there");
            return;
        }
        let files = [&self.base, &self.target].map(|id| driver.snapshot_file(id));
        let [Some(base), Some(target)] = files else {
            return;
        };
        for path in [&base, &target] {
            forget_cached(path);
        }
        for operation in [pattern.name, pattern.name_if_cached] {
            let changed = watch.run(operation, || compare(&base, &target));
            assert!(changed > 0, "nothing has changed");
        }
    }

    async fn release(&self, driver: &Driver) {
        let client = &driver.client;
        for snapshot in [&self.base, &self.target] {
            client.delete_snapshot(snapshot).await.expect("delete a snapshot");
        }
        client.delete(&self.volume).await.expect("delete the volume");
    }
}

fn change(path: &Path, pattern: &Pattern, size: u64) {
    let file = File::options().write(true).open(path).expect("open what is to be changed");
    let changed = vec![0xA5; pattern.piece];
    let piece = u64::try_from(pattern.piece).expect("a small number");
    let mut rng = Rng::with_seed(1);
    for _ in 0..size.div_ceil(piece * 100) {
        let offset = rng.u64(..size / piece) * piece;
        file.write_all_at(&changed, offset).expect("change a piece");
    }
    file.sync_all().expect("sync what was changed");
}

fn baseline_pair(testbed: &Testbed, pattern: &Pattern, size: u64) -> (PathBuf, PathBuf) {
    let directory = testbed.directory("pair");
    let (live, base, target) =
        (directory.join("live"), directory.join("base"), directory.join("target"));
    let file = baseline::filled_image(&live, size);
    baseline::clone(&file, &baseline::create_sized(&base, 0));
    let device = baseline::attach(&live, size);
    change(&device.path(), pattern, size);
    baseline::detach(&device);
    baseline::clone(&file, &baseline::create_sized(&target, 0));
    (base, target)
}

/// How many extents hold data.
fn walk(path: &Path) -> usize {
    let file = File::open(path).expect("open a snapshot");
    let extents = extents::extents(file, 0).map(|extent| extent.expect("map a snapshot"));
    extents.filter(|extent| extent.kind == ExtentKind::Data).count()
}

/// How many blocks differ, by reading all of them.
fn compare(base: &Path, target: &Path) -> usize {
    let [base, target] = [base, target].map(|path| File::open(path).expect("open a snapshot"));
    let size = base.metadata().expect("look at a snapshot").len();
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let (mut offset, mut changed) = (0, 0);
    while offset < size {
        base.read_exact_at(&mut left, offset).expect("read a snapshot");
        target.read_exact_at(&mut right, offset).expect("read a snapshot");
        let blocks = left.chunks(BLOCK).zip(right.chunks(BLOCK));
        changed += blocks.filter(|(left, right)| left != right).count();
        offset += 1 << 20;
    }
    changed
}

fn forget_cached(path: &Path) {
    let file = File::open(path).expect("open a snapshot");
    // What is not written yet is not forgotten either.
    file.sync_all().expect("sync a snapshot");
    fadvise(&file, 0, None, Advice::DontNeed).expect("drop it from the page cache");
}
