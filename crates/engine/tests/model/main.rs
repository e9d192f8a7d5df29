//! The engine against a reference: sequences of calls, some of them odd, with restarts and reboots
//! in between. Every answer, and all that is there afterwards, has to be what the reference says.
//!
//! More of it: `PROPTEST_CASES=20000 cargo test -p orlop-engine --test model`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::wildcard_enum_match_arm, reason = "steps are handed on by subject")]

mod engine_under_test;
#[path = "../policy/fixture.rs"]
#[allow(dead_code, unused_macros, unused_imports)]
mod fixture;
mod reference;
mod reference_node;
mod step;

use proptest::prelude::*;

use engine_under_test::EngineUnderTest;
use reference::Reference;
use step::{Origin, Shape, Step, steps};

/// Some seconds; a failing sequence is shortened before it is shown.
fn config() -> ProptestConfig {
    let cases = std::env::var_os("PROPTEST_CASES").is_none().then_some(500);
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: cases.unwrap_or(usual.cases),
        // What failed once is written down as a test, below.
        failure_persistence: None,
        ..usual
    }
}

fn follow(steps: &[Step]) {
    let (mut engine, mut reference) = (EngineUnderTest::new(), Reference::default());
    for (index, step) in steps.iter().enumerate() {
        let expected = reference.follow(step);
        let answered = engine.follow(step);
        assert_eq!(answered, expected, "the answer to step {index}, {step:?}");
        assert_eq!(engine.state(), reference.state(), "after step {index}, {step:?}");
    }
    for step in reference.undoing() {
        let expected = reference.follow(&step);
        assert_eq!(engine.follow(&step), expected, "the answer to {step:?}, cleaning up");
    }
    engine.assert_empty();
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn engine_matches_the_reference(steps in steps()) {
        follow(&steps);
    }
}

/// Found by the sequences above.
#[test]
fn copied_filesystem_published_raw_counts_as_raw() {
    let create = |volume, shape, origin| Step::Create { volume, shape, range: None, origin };
    follow(&[
        create(0, Shape::Mounted, None),
        Step::Stage { volume: 0, shape: Shape::Mounted, path: 0 },
        create(1, Shape::Block, Some(Origin::Volume(0))),
        Step::Stage { volume: 1, shape: Shape::Block, path: 0 },
    ]);
}

#[test]
fn a_published_path_is_not_unstaged() {
    let shape = Shape::Shared;
    follow(&[
        Step::Create { volume: 3, shape, range: None, origin: None },
        Step::Stage { volume: 3, shape, path: 2 },
        Step::Publish { volume: 3, shape, staging: 2, target: 1, read_only: false },
        Step::Unstage { volume: 3, path: 1 },
    ]);
}
