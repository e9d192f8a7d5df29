//! Snapshot, restore and clone of volumes that hold data.

use std::fs::File;

use orlop_tests::{GIB, MIB, OnNode};

use crate::Effort;
use crate::bare::{self, Bare};
use crate::contender::{Contender, Kind};
use crate::ground::{Drivers, Ground};
use crate::results::{Circumstance, Results, binary_size};
use crate::stopwatch::{Stopwatch, Times};

pub(crate) const OPERATIONS: [&str; 3] = ["snapshot", "restore", "clone"];

/// Seconds that a driver which copies byte by byte gets for one size; the round under way is
/// finished.
const PATIENCE: f64 = 20.0;

struct Case {
    kind: Kind,
    data: u64,
    samples: usize,
}

impl Case {
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
         snapshot of a block volume and its clone of a mount volume are reflinks too. The floor is \
         a new file, FICLONE, fsync, rename and fsync of the directory.",
    );
    let case = |kind, data, samples| Case { kind, data, samples };
    let cases = effort.of(
        vec![
            case(Kind::Block, 64 * MIB, 50),
            case(Kind::Block, GIB, 25),
            case(Kind::Block, 10 * GIB, 10),
            case(Kind::Mount, 64 * MIB, 25),
            case(Kind::Mount, GIB, 10),
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
    let ground = Ground::new(drivers).await;
    // Three sources, one copy that shares nothing, and room to breathe.
    if ground.room() < case.data * 5 {
        println!("no room on the disk for {} of data", binary_size(case.data));
        return;
    }
    let ours = filled(&ground.ours, case).await;
    let peer = filled(&ground.peer, case).await;
    let source = bare::filled_image(&ground.directory("source").join("data"), case.data);
    let bare = Bare::new(&ground, GIB);

    let mut times = Times::default();
    for round in 0..=case.samples {
        // The first is a warm-up, but a slow one counts: there may be no second.
        if round == 1 && !is_slow(&times.peer) {
            times = Times::default();
        }
        ground.settle();
        copies(&ground.ours, case.kind, case.size(), &ours.id, round, &mut times.ours).await;
        if !is_slow(&times.peer) {
            ground.settle();
            copies(&ground.peer, case.kind, case.size(), &peer.id, round, &mut times.peer).await;
            ground.settle();
            ground.trim();
        }
        bare_copies(&bare, &source, &mut times.floor);
    }
    for operation in OPERATIONS {
        let title = format!("{operation}, {}", case.kind.name());
        results.add(times.row(title, &[operation], Circumstance::Data(case.data)));
    }
    release(&ground.ours, &ours).await;
    release(&ground.peer, &peer).await;
}

fn is_slow(watch: &Stopwatch) -> bool {
    watch.sum(&OPERATIONS).is_some_and(|spent| spent.total() > PATIENCE)
}

async fn filled(contender: &Contender, case: &Case) -> OnNode {
    let volume = contender.create("source", case.kind, case.size()).done().await;
    let node = contender.client.on_node(&volume, case.kind.capability());
    let mut unwatched = Stopwatch::default();
    contender.up(&node, &mut unwatched).await;
    bare::fill(&node.data_path(), case.data);
    contender.down(&node, &mut unwatched).await;
    node
}

async fn release(contender: &Contender, node: &OnNode) {
    contender.client.delete(&node.id).await.expect("delete the source");
}

/// One of each, gone again afterwards: host-path keeps one snapshot of a volume.
pub(crate) async fn copies(
    contender: &Contender,
    kind: Kind,
    size: u64,
    source: &str,
    round: usize,
    watch: &mut Stopwatch,
) {
    let client = &contender.client;
    let name = format!("copy-{round}");
    let snapshot = watch.call("snapshot", client.snapshot(&name, source)).await.snapshot_id;
    let restore = contender.create(&name, kind, size).from_snapshot(&snapshot);
    let restored = watch.call("restore", restore.send()).await.volume_id;
    client.delete(&restored).await.expect("delete a restored volume");
    client.delete_snapshot(&snapshot).await.expect("delete a snapshot");
    let clone = contender.create(&name, kind, size).from_volume(source);
    let cloned = watch.call("clone", clone.send()).await.volume_id;
    client.delete(&cloned).await.expect("delete a clone");
}

pub(crate) fn bare_copies(bare: &Bare, source: &File, watch: &mut Stopwatch) {
    for operation in OPERATIONS {
        bare.copy(source, operation, watch);
    }
}
