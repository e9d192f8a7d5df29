use super::*;
use crate::results::{IoRow, Row};

fn results(operation: &str, with: Circumstance, unit: Unit, figures: [f64; 3]) -> Results {
    let [ours, peer, floor] = figures.map(|figure| Some(Series::of([figure; 5])));
    let mut results = Results::default();
    results.begin("Tests", "");
    let operation = operation.to_owned();
    results.add(Row { operation, with, unit, ours, peer, floor, note: None });
    results
}

fn kept_of(results: &Results) -> Vec<Kept> {
    verdicts(results).iter().map(|verdict| verdict.kept).collect()
}

#[test]
fn copy_is_judged_against_peer_and_floor() {
    let judge = |figures| kept_of(&results("snapshot, block", ONE_GIB, Unit::Time, figures));
    assert_eq!(judge([1.0, 50.0, 0.5]), [Kept::Met, Kept::Met]);
    assert_eq!(judge([1.0, 49.0, 0.5]), [Kept::Missed, Kept::Met]);
    assert_eq!(judge([1.0, 50.0, 0.4]), [Kept::Met, Kept::Missed]);
    assert_eq!(judge([1.0, 20.0, 0.5]), [Kept::OutOfReach, Kept::Met]);
}

#[test]
fn larger_rate_is_better() {
    let with = Circumstance::Callers(16);
    let judge = |figures| kept_of(&results(CREATIONS, with, Unit::Rate, figures));
    assert_eq!(judge([500.0, 100.0, 1000.0]), [Kept::Met]);
    assert_eq!(judge([100.0, 150.0, 1000.0]), [Kept::Missed]);
    assert_eq!(judge([100.0, 500.0, 1000.0]), [Kept::OutOfReach]);
}

#[test]
fn memory_has_a_limit() {
    let operation = "resident memory, idle";
    let judge = |mebibytes: f64| {
        let figures = [mebibytes * MIB, 1.0, 1.0];
        kept_of(&results(operation, Circumstance::Usual, Unit::Bytes, figures))
    };
    assert_eq!(judge(14.9), [Kept::Met]);
    assert_eq!(judge(15.0), [Kept::Missed]);
}

#[test]
fn missing_measurement_is_not_judged() {
    assert!(verdicts(&Results::default()).is_empty());
}

#[test]
fn io_is_judged_by_the_spread_of_two_bare_devices() {
    let judge = |ours: [f64; 4], second: [f64; 4]| {
        let [ours, second_loop] = [ours, second].map(Series::of);
        let baseline = Series::of([100.0; 4]);
        let mut results = Results::default();
        results.io.push(IoRow {
            job: "a job",
            unit: Unit::Rate,
            ours,
            peer: baseline.clone(),
            second_loop,
            bare_file: baseline.clone(),
            bare_loop: baseline,
        });
        kept_of(&results)
    };
    let (calm, wild) = ([100.0; 4], [50.0, 200.0, 60.0, 190.0]);
    assert_eq!(judge([96.0, 103.0, 97.0, 102.0], calm), [Kept::Met]);
    assert_eq!(judge([94.0, 98.0, 97.0, 99.0], calm), [Kept::Missed]);
    let scattered = [40.0, 110.0, 50.0, 150.0];
    assert_eq!(judge(scattered, calm), [Kept::Missed]);
    assert_eq!(judge(scattered, wild), [Kept::Indistinguishable]);
    assert_eq!(judge([30.0; 4], wild), [Kept::Missed]);
}
