//! I/O through a published volume, against the same I/O without a driver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_tests::{GIB, MIB, OnNode};

use crate::Effort;
use crate::bare;
use crate::contender::{Contender, Kind};
use crate::fio::{JOBS, Job};
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
    let duration = Duration::from_millis(effort.of(1200, 200));
    let mut figures = targets.map(|_| Series::default());
    for _ in 0..effort.of(4, 1) {
        for (target, series) in targets.iter().zip(&mut figures) {
            ground.settle();
            series.push(job.run(target, size, duration));
        }
    }
    let [ours, peer, bare_loop, bare_file] = figures;
    IoRow { job: job.name, unit: job.unit, ours, peer, bare_loop, bare_file }
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
