//! Probe, and a volume from its creation to its end.

use crate::Effort;
use crate::baseline::echo::Echo;
use crate::baseline::{self, Baseline};
use crate::driver::{Driver, Kind};
use crate::results::{Circumstance, Results};
use crate::stopwatch::{Stopwatch, Times};
use crate::testbed::{Drivers, Testbed};
use orlop_tests::{GIB, MIB};

pub(crate) const SIZE: u64 = GIB;
pub(crate) const WARM_UP: usize = 3;

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    let testbed = Testbed::new(drivers).await;
    results.begin(
        "A volume's life",
        "One volume of 1 GiB after the other. Mount volumes of Orlop are a new ext4 each; those of \
         host-path are directories that are bound. For mount, the floor of a creation is a reflinked \
         template with a fresh UUID, fsync, rename and fsync of the directory; that of a stage is \
         LOOP_CONFIGURE and mount.",
    );
    results.add(probes(&testbed, effort).await.row(
        "Probe".into(),
        &["Probe"],
        Circumstance::Usual,
    ));
    let baseline = Baseline::new(&testbed, SIZE);
    for kind in [Kind::Mount, Kind::Block] {
        let times = lifecycles(&testbed, &baseline, kind, effort.of(100, 5)).await;
        for (operation, parts) in OPERATIONS {
            let operation = format!("{operation}, {}", kind.name());
            results.add(times.row(operation, parts, Circumstance::Usual));
        }
        if kind == Kind::Mount {
            note_bare_calls(&baseline, times.floor, effort, results);
        }
    }
}

/// The operations that are reported, and the calls that each is made of.
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

pub(crate) async fn lifecycles(
    testbed: &Testbed,
    baseline: &Baseline,
    kind: Kind,
    samples: usize,
) -> Times {
    let mut times = Times::default();
    for round in 0..WARM_UP + samples {
        if round == WARM_UP {
            times = Times::default();
        }
        one(testbed, baseline, (kind, round), &mut times).await;
    }
    times
}

/// Of each.
pub(crate) async fn one(
    testbed: &Testbed,
    baseline: &Baseline,
    (kind, round): (Kind, usize),
    times: &mut Times,
) {
    testbed.settle();
    lifecycle(&testbed.ours, kind, round, &mut times.ours).await;
    testbed.settle();
    lifecycle(&testbed.peer, kind, round, &mut times.peer).await;
    testbed.settle();
    baseline.lifecycle(kind, &mut times.floor);
}

async fn lifecycle(driver: &Driver, kind: Kind, round: usize, watch: &mut Stopwatch) {
    let create = driver.create(&format!("life-{round}"), kind, SIZE);
    let volume = watch.call("create", create.send()).await;
    let node = driver.client.on_node(&volume, kind.capability());
    driver.up(&node, watch).await;
    driver.down(&node, watch).await;
    watch.call("delete", driver.client.delete(&node.id)).await;
    // Not all drivers leave it as they found it.
    let _ = std::fs::remove_dir(&node.staging);
}

pub(crate) async fn probes(testbed: &Testbed, effort: Effort) -> Times {
    let mut times = Times::default();
    let mut echo = Echo::new();
    for round in 0..WARM_UP + effort.of(500, 20) {
        if round == WARM_UP {
            times = Times::default();
        }
        times.ours.call("Probe", testbed.ours.client.probe()).await;
        times.peer.call("Probe", testbed.peer.client.probe()).await;
        times.floor.run("Probe", || echo.ask());
    }
    times
}

fn note_bare_calls(
    baseline: &Baseline,
    mut floor: Stopwatch,
    effort: Effort,
    results: &mut Results,
) {
    let source = baseline::filled_image(&baseline.scratch_file(), 64 * MIB);
    for _ in 0..effort.of(25, 3) {
        baseline.mkfs(&mut floor);
        baseline.copy(&source, "copy", &mut floor);
        baseline.copy_by_one_fsync(&source, &mut floor);
    }
    let timed = |call: &&'static str| floor.series(call).map(|series| (*call, series));
    results.bare_calls = baseline::CALLS.iter().filter_map(timed).collect();
}
