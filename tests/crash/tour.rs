//! All operations under strace: each effect has a crash point, and each call of the protocol is
//! either walked or has no effect.

use std::collections::BTreeSet;
use std::path::Path;

use orlop_tests::{PoolFs, Scratch, report};

use crate::looking;
use crate::trace::{Findings, Trace};
use crate::walk::{Scenario, Stroll};
use crate::world::{World, answered, settled};

pub(crate) struct Tour {
    world: World,
    trace: Trace,
    /// All that were started.
    daemons: BTreeSet<u32>,
    walked: BTreeSet<&'static str>,
    _scratch: Scratch,
}

impl Tour {
    pub(crate) async fn on(fs: PoolFs) -> Self {
        let scratch = Scratch::new();
        let trace = Trace::to(scratch.join("trace"));
        let words = trace.words();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let world = World::watched_by(fs, &words).await;
        let daemons = BTreeSet::from([world.process()]);
        Self { world, trace, daemons, walked: BTreeSet::new(), _scratch: scratch }
    }

    /// Returns the calls that were walked.
    pub(crate) async fn finish(self) -> BTreeSet<&'static str> {
        let Self { world, trace, daemons, walked, _scratch } = self;
        let last = world.process();
        world.finish().await;
        trace.wait_for_end_of(last);
        let Findings { effects, without_point } = trace.findings(&daemons);
        let missing: Vec<_> = without_point
            .into_iter()
            .map(|((_, point), call)| format!("{call}\n    after the point: {point}"))
            .collect();
        assert!(
            missing.is_empty(),
            "effects without a crash point (crates/sys/src/crash.rs):\n{}",
            missing.join("\n")
        );
        let all: usize = effects.values().sum();
        report(&format!(
            "trace: {all} effects by {} system calls, each with a crash point",
            effects.len()
        ));
        walked
    }

    /// Calls that only look have no effect.
    pub(crate) async fn look(&self) -> BTreeSet<&'static str> {
        let before = self.world.orders().noted_effects();
        let calls = looking::all(&self.world).await;
        assert_eq!(self.world.orders().noted_effects(), before, "a call that only looks acted");
        calls
    }
}

impl Stroll for Tour {
    /// Once to its end, and once only half, so that the next start has something to clear away.
    async fn walk<S: Scenario>(&mut self, scenario: &S) {
        let world = &mut self.world;
        self.walked.insert(scenario.rpc());
        let state = scenario.prepare(world, scenario.name()).await;
        let before = world.orders().noted_effects();
        settled(scenario.name(), || scenario.call(world, &state)).await;
        let effects = world.orders().noted_effects() - before;
        scenario.holds(world, &state).await;
        scenario.take_back(world, &state).await;

        world.orders().end_after(effects / 2);
        let _ = answered(scenario.call(world, &state)).await;
        if world.ended_after().await.is_some() {
            world.start_again().await;
            self.daemons.insert(world.process());
        }
        world.orders().forget();
        scenario.take_back(world, &state).await;
        scenario.clear(world, state).await;
    }
}

/// Every call of the protocols that are served, as "package.Service/Call". Those of `csi.v0`
/// become calls of `csi.v1` before anything is done.
pub(crate) fn all_calls() -> BTreeSet<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    let files =
        ["csi/v1/csi", "csiaddons/identity", "csiaddons/reclaimspace", "csiaddons/volumegroup"];
    files.iter().flat_map(|name| calls_in(&directory.join(format!("{name}.proto")))).collect()
}

fn calls_in(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("read a protocol");
    let mut calls = Vec::new();
    let (mut package, mut service) = ("", "");
    for line in text.lines() {
        let words: Vec<_> =
            line.split([' ', ';', '(', '{']).filter(|word| !word.is_empty()).collect();
        match words.as_slice() {
            ["package", name, ..] => package = name,
            ["service", name, ..] => service = name,
            ["rpc", name, ..] => calls.push(format!("{package}.{service}/{name}")),
            _ => {}
        }
    }
    assert!(!calls.is_empty(), "no call in {}", file.display());
    calls
}
