//! I/O through a published volume, against the same I/O without a driver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_tests::{GIB, MIB, OnNode};

use crate::Effort;
use crate::bare;
use crate::contender::{Contender, Kind};
use crate::fio::{Engine, JOBS, Job};
use crate::ground::{Drivers, Ground};
use crate::results::{IoRow, Results};
use crate::series::Series;
use crate::stopwatch::Stopwatch;

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    let ground = Ground::new(drivers).await;
    let size = effort.of(GIB, 64 * MIB);
    let ours = published(&ground.ours, size).await;
    let peer = published(&ground.peer, size).await;
    let directory = ground.directory("io");
    let (file, behind_loop) = (directory.join("file"), directory.join("behind-loop"));
    drop(bare::filled_image(&file, size));
    drop(bare::filled_image(&behind_loop, size));
    let device = bare::attach(&behind_loop, size);
    let device_path = device.path();

    for job in JOBS {
        let targets = [&ours.target, &peer.target, &device_path, &file].map(PathBuf::as_path);
        let row = measure(&ground, &job, targets, size, effort);
        println!("{}", crate::report::io_line(&row));
        results.io.push(row);
    }

    bare::detach(&device);
    taken_down(&ground.ours, &ours).await;
    taken_down(&ground.peer, &peer).await;
}

fn measure(ground: &Ground, job: &Job, targets: [&Path; 4], size: u64, effort: Effort) -> IoRow {
    let how = effort.of(Rounds { count: 7, each: 400 }, Rounds { count: 1, each: 200 });
    let [ours, peer, bare_loop, bare_file] =
        in_turns(ground, &how, targets, |target, time| job.run(target, size, time, Engine::Aio));
    IoRow { job: job.name, unit: job.unit, ours, peer, bare_loop, bare_file }
}

pub(super) struct Rounds {
    pub(super) count: usize,
    /// Milliseconds.
    pub(super) each: u64,
}

/// Each round begins with another: whoever comes after a writer may have to pay for it.
pub(super) fn in_turns<T: Copy, const N: usize>(
    ground: &Ground,
    rounds: &Rounds,
    subjects: [T; N],
    run: impl Fn(T, Duration) -> f64,
) -> [Series; N] {
    let mut figures = subjects.map(|_| Series::default());
    for round in 0..rounds.count {
        for turn in 0..N {
            let who = (round + turn) % N;
            ground.settle();
            figures[who].push(run(subjects[who], Duration::from_millis(rounds.each)));
        }
    }
    figures
}

async fn published(contender: &Contender, size: u64) -> OnNode {
    let volume = contender.create("io", Kind::Block, size).done().await;
    let node = contender.client.on_node(&volume, Kind::Block.capability());
    contender.up(&node, &mut Stopwatch::default()).await;
    bare::fill(&node.target, size);
    node
}

async fn taken_down(contender: &Contender, node: &OnNode) {
    contender.down(node, &mut Stopwatch::default()).await;
    contender.client.delete(&node.id).await.expect("delete the volume");
}
