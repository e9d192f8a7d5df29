//! All operations under strace: each effect has a crash point, and each call of the protocol has
//! either a scenario or no effect.

use std::collections::BTreeSet;
use std::path::Path;

use orlop_tests::{Scratch, report};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, answered, settled};
use crate::pool::Kind;
use crate::read_only_calls;
use crate::trace::{Findings, Trace};

pub(crate) struct Coverage {
    fixture: Fixture,
    trace: Trace,
    /// All that were started.
    daemons: BTreeSet<u32>,
    operations: BTreeSet<&'static str>,
    _scratch: Scratch,
}

impl Coverage {
    pub(crate) async fn on(kind: Kind) -> Self {
        let scratch = Scratch::new();
        let trace = Trace::to(scratch.join("trace"));
        let words = trace.words();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let fixture = Fixture::under_tracer(kind, &words).await;
        let daemons = BTreeSet::from([fixture.process()]);
        Self { fixture, trace, daemons, operations: BTreeSet::new(), _scratch: scratch }
    }

    /// Returns the calls that scenarios made.
    pub(crate) async fn finish(self) -> BTreeSet<&'static str> {
        let Self { fixture, trace, daemons, operations, _scratch } = self;
        let last = fixture.process();
        fixture.finish().await;
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
        operations
    }

    /// Read-only calls have no effect.
    pub(crate) async fn make_read_only_calls(&self) -> BTreeSet<&'static str> {
        let before = self.fixture.crash_control().noted_effects();
        let calls = read_only_calls::all(&self.fixture).await;
        assert_eq!(
            self.fixture.crash_control().noted_effects(),
            before,
            "a call that only looks acted"
        );
        calls
    }
}

impl ScenarioRunner for Coverage {
    /// Once to its end, and once only half, so that the next start has orphans to remove.
    async fn run<S: Scenario>(&mut self, scenario: &S) {
        let fixture = &mut self.fixture;
        self.operations.insert(scenario.rpc());
        let state = scenario.prepare(fixture, scenario.name()).await;
        let before = fixture.crash_control().noted_effects();
        settled(scenario.name(), || scenario.call(fixture, &state)).await;
        let effects = fixture.crash_control().noted_effects() - before;
        scenario.holds(fixture, &state).await;
        scenario.roll_back(fixture, &state).await;

        fixture.crash_control().end_after(effects / 2);
        let _ = answered(scenario.call(fixture, &state)).await;
        if fixture.ended_after().await.is_some() {
            fixture.restart().await;
            self.daemons.insert(fixture.process());
        }
        fixture.crash_control().disarm();
        scenario.roll_back(fixture, &state).await;
        scenario.clear(fixture, state).await;
    }
}

/// Every call of the protocols that are served, as "package.Service/Call". Those of `csi.v0`
/// become calls of `csi.v1` before anything is done.
pub(crate) fn all_calls() -> BTreeSet<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    let files = [
        "csi/v1/csi",
        "csiaddons/identity",
        "csiaddons/reclaimspace",
        "csiaddons/volumegroup",
        "orlop/monitor",
    ];
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
