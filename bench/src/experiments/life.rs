//! Probe, and a volume from its creation to its end.

use crate::Effort;
use crate::bare::echo::Echo;
use crate::bare::{self, Bare};
use crate::contender::{Contender, Kind};
use crate::ground::{Drivers, Ground};
use crate::results::{Circumstance, Results};
use crate::stopwatch::{Stopwatch, Times};
use orlop_tests::{GIB, MIB};

pub(crate) const SIZE: u64 = GIB;
pub(crate) const WARM_UP: usize = 3;

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    let ground = Ground::new(drivers).await;
    results.begin(
        "A volume's life",
        "One volume of 1 GiB after the other. Mount volumes of Orlop are a new ext4 each; those of \
         host-path are directories that are bound. For mount, the floor of a creation is a reflinked \
         template with a fresh UUID, fsync, rename and fsync of the directory; that of a stage is \
         LOOP_CONFIGURE and mount.",
    );
    results.add(probes(&ground, effort).await.row("Probe".into(), &["Probe"], Circumstance::Usual));
    let bare = Bare::new(&ground, SIZE);
    for kind in [Kind::Mount, Kind::Block] {
        let times = lives(&ground, &bare, kind, effort.of(100, 5)).await;
        for (operation, parts) in OPERATIONS {
            let operation = format!("{operation}, {}", kind.name());
            results.add(times.row(operation, parts, Circumstance::Usual));
        }
        if kind == Kind::Mount {
            note_bare_calls(&bare, times.floor, effort, results);
        }
    }
}

/// What is told of a life, and of which calls it is made.
pub(crate) const OPERATIONS: [(&str, &[&str]); 9] = [
    ("create", &["create"]),
    ("stage", &["stage"]),
    ("publish", &["publish"]),
    ("stage + publish", &["stage", "publish"]),
    ("create + stage + publish", &["create", "stage", "publish"]),
    ("unpublish", &["unpublish"]),
    ("unstage", &["unstage"]),
    ("unpublish + unstage", &["unpublish", "unstage"]),
    ("delete", &["delete"]),
];

pub(crate) async fn lives(ground: &Ground, bare: &Bare, kind: Kind, samples: usize) -> Times {
    let mut times = Times::default();
    for round in 0..WARM_UP + samples {
        if round == WARM_UP {
            times = Times::default();
        }
        one(ground, bare, (kind, round), &mut times).await;
    }
    times
}

/// Of each.
pub(crate) async fn one(
    ground: &Ground,
    bare: &Bare,
    (kind, round): (Kind, usize),
    times: &mut Times,
) {
    ground.settle();
    life(&ground.ours, kind, round, &mut times.ours).await;
    ground.settle();
    life(&ground.peer, kind, round, &mut times.peer).await;
    ground.settle();
    bare.life(kind, &mut times.floor);
}

async fn life(contender: &Contender, kind: Kind, round: usize, watch: &mut Stopwatch) {
    let create = contender.create(&format!("life-{round}"), kind, SIZE);
    let volume = watch.call("create", create.send()).await;
    let node = contender.client.on_node(&volume, kind.capability());
    contender.up(&node, watch).await;
    contender.down(&node, watch).await;
    watch.call("delete", contender.client.delete(&node.id)).await;
    // Not all drivers leave it as they found it.
    let _ = std::fs::remove_dir(&node.staging);
}

pub(crate) async fn probes(ground: &Ground, effort: Effort) -> Times {
    let mut times = Times::default();
    let mut echo = Echo::new();
    for round in 0..WARM_UP + effort.of(500, 20) {
        if round == WARM_UP {
            times = Times::default();
        }
        times.ours.call("Probe", ground.ours.client.probe()).await;
        times.peer.call("Probe", ground.peer.client.probe()).await;
        times.floor.run("Probe", || echo.ask());
    }
    times
}

fn note_bare_calls(bare: &Bare, mut floor: Stopwatch, effort: Effort, results: &mut Results) {
    let source = bare::filled_image(&bare.scratch_file(), 64 * MIB);
    for _ in 0..effort.of(25, 3) {
        bare.mkfs(&mut floor);
        bare.copy(&source, "copy", &mut floor);
        bare.copy_by_one_fsync(&source, &mut floor);
    }
    let timed = |call: &&'static str| floor.series(call).map(|series| (*call, series));
    results.bare_calls = bare::CALLS.iter().filter_map(timed).collect();
}
