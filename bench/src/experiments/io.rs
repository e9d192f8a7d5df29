//! I/O through a published volume, against the same I/O without a driver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_sys::loopdev::LoopDevice;
use orlop_tests::{GIB, MIB, OnNode};

use crate::Effort;
use crate::baseline;
use crate::driver::{Driver, Kind};
use crate::fio::{Engine, JOBS, Job};
use crate::results::{IoRow, Results};
use crate::series::Series;
use crate::stopwatch::Stopwatch;
use crate::testbed::{Drivers, Testbed};

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    let testbed = Testbed::new(drivers).await;
    let size = effort.of(GIB, 64 * MIB);
    let ours = published(&testbed.ours, size).await;
    let peer = published(&testbed.peer, size).await;
    let directory = testbed.directory("io");
    let file = directory.join("file");
    drop(baseline::filled_image(&file, size));
    let devices = ["first", "second"].map(|name| filled_device(&directory.join(name), size));
    let [first, second] = devices.each_ref().map(LoopDevice::path);

    for job in JOBS {
        let targets = [&ours.target, &first, &second, &file].map(PathBuf::as_path);
        let row = measure(&testbed, &job, targets, &peer.target, size, effort);
        println!("{}", crate::report::io_line(&row));
        results.io.push(row);
    }

    devices.iter().for_each(baseline::detach);
    taken_down(&testbed.ours, &ours).await;
    taken_down(&testbed.peer, &peer).await;
}

/// Many short rounds of those that may differ by only a few per cent.
fn measure(
    testbed: &Testbed,
    job: &Job,
    targets: [&Path; 4],
    peer: &Path,
    size: u64,
    effort: Effort,
) -> IoRow {
    let each = 200;
    let run = |target: &Path, time| job.run(target, size, time, Engine::Aio);
    let rounds = Rounds { count: effort.of(12, 1), each };
    let settle = || testbed.settle();
    let [ours, bare_loop, second_loop, bare_file] = in_turns(settle, &rounds, targets, run);
    let rounds = Rounds { count: effort.of(3, 1), each };
    let [peer] = in_turns(settle, &rounds, [peer], run);
    IoRow { job: job.name, unit: job.unit, ours, peer, bare_loop, second_loop, bare_file }
}

pub(crate) struct Rounds {
    pub(crate) count: usize,
    /// Milliseconds.
    pub(crate) each: u64,
}

/// A job that follows a writer may pay for its writes: over the rounds each comes after each of the
/// others equally often, as in the squares of E. J. Williams.
pub(crate) fn in_turns<T: Copy, const N: usize>(
    settle: impl Fn(),
    rounds: &Rounds,
    subjects: [T; N],
    run: impl Fn(T, Duration) -> f64,
) -> [Series; N] {
    let mut figures = subjects.map(|_| Series::default());
    for round in 0..rounds.count {
        for who in order::<N>(round) {
            settle();
            figures[who].push(run(subjects[who], Duration::from_millis(rounds.each)));
        }
    }
    figures
}

/// From both ends towards the middle, and one further each round. An odd number needs the same
/// once more, backwards.
fn order<const N: usize>(round: usize) -> [usize; N] {
    let mut order = std::array::from_fn(|turn| {
        let from_an_end = turn.div_ceil(2);
        let first = if turn % 2 == 1 { from_an_end } else { (N - from_an_end) % N };
        (first + round) % N
    });
    if N % 2 == 1 && (round / N) % 2 == 1 {
        order.reverse();
    }
    order
}

/// Made and written as a volume is, and at the same time.
fn filled_device(image: &Path, size: u64) -> LoopDevice {
    drop(baseline::create_sized(image, size));
    let device = baseline::attach(image, size);
    baseline::fill(&device.path(), size);
    device
}

async fn published(driver: &Driver, size: u64) -> OnNode {
    let volume = driver.create("io", Kind::Block, size).done().await;
    let node = driver.client.on_node(&volume, Kind::Block.capability());
    driver.up(&node, &mut Stopwatch::default()).await;
    baseline::fill(&node.target, size);
    node
}

async fn taken_down(driver: &Driver, node: &OnNode) {
    driver.down(node, &mut Stopwatch::default()).await;
    driver.client.delete(&node.id).await.expect("delete the volume");
}

#[cfg(test)]
mod tests;
