//! What is promised, and whether this run kept it.

use std::fmt;

use orlop_tests::GIB;

use super::figure::{Figure, digits};
use crate::experiments::{CREATIONS, DELTA, SIDE_BY_SIDE};
use crate::results::{Circumstance, Results, Unit};
use crate::series::Series;

const MIB: f64 = 1_048_576.0;
const MANY: Circumstance = Circumstance::Volumes(10_000);
const FEW: Circumstance = Circumstance::Volumes(10);
const LEAST_IO: f64 = 0.9;
const ONE_GIB: Circumstance = Circumstance::Data(GIB);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Met,
    Missed,
    /// Not even the bare calls keep it.
    OutOfReach,
    /// Two of a kind differ as much.
    Indistinguishable,
}

impl fmt::Display for Kept {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Met => "met",
            Self::Missed => "**missed**",
            Self::OutOfReach => "**missed**, as it is by the bare calls",
            Self::Indistinguishable => "not told apart: two bare devices differ as much",
        })
    }
}

pub(crate) struct Verdict {
    pub(crate) title: String,
    pub(crate) wanted: String,
    pub(crate) found: String,
    /// Empty where the floor is part of the target.
    pub(crate) floor: String,
    pub(crate) kept: Kept,
}

/// Only of what was measured.
pub(crate) fn verdicts(results: &Results) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for kind in ["block", "mount"] {
        for operation in ["snapshot", "restore", "clone"] {
            let operation = format!("{operation}, {kind}");
            verdicts.extend(against_peer(results, &operation, ONE_GIB, 50.0));
            verdicts.extend(against_floor(results, &operation, ONE_GIB, 2.0));
        }
    }
    for delta in DELTA {
        verdicts.extend(against_peer(results, delta, ONE_GIB, 100.0));
    }
    for operation in ["stage + publish, mount", "unpublish + unstage, mount"] {
        verdicts.extend(against_peer(results, operation, Circumstance::Usual, 1.0));
    }
    verdicts.extend(flat(results, SIDE_BY_SIDE, 1.2));
    verdicts.extend(against_peer(results, CREATIONS, Circumstance::Callers(16), 5.0));
    verdicts.extend(memory(results, "resident memory, idle", Circumstance::Usual, 15.0));
    for how in ["all created since the start", "after a cold start"] {
        verdicts.extend(memory(results, &format!("resident memory, {how}"), MANY, 40.0));
    }
    verdicts.extend(io(results));
    verdicts
}

fn kept(is_met: bool, is_met_by_floor: Option<bool>) -> Kept {
    match (is_met, is_met_by_floor) {
        (true, _) => Kept::Met,
        (false, Some(false)) => Kept::OutOfReach,
        (false, Some(true) | None) => Kept::Missed,
    }
}

fn against_peer(
    results: &Results,
    operation: &str,
    with: Circumstance,
    least: f64,
) -> Option<Verdict> {
    let row = results.find(operation, with)?;
    let (ours, peer) = (row.ours.as_ref()?, row.peer.as_ref()?);
    let ratio = match row.unit {
        Unit::Time | Unit::Bytes => peer.ratio_to(ours),
        Unit::Rate | Unit::Throughput => ours.ratio_to(peer),
    };
    let wanted = match least {
        1.0 => "faster than the peer".to_owned(),
        _ => format!("at least {least}x the peer"),
    };
    let best = row.floor.as_ref().map(|floor| match row.unit {
        Unit::Time | Unit::Bytes => peer.median() / floor.median(),
        Unit::Rate | Unit::Throughput => floor.median() / peer.median(),
    });
    let floor = row.floor.as_ref().zip(best).map(|(floor, best)| {
        format!("{}, {}x the peer", Figure(row.unit, floor.median()), digits(best))
    });
    Some(Verdict {
        title: row.title(),
        wanted,
        found: ratio.to_string(),
        floor: floor.unwrap_or_default(),
        kept: kept(ratio.value >= least, best.map(|best| best >= least)),
    })
}

fn against_floor(
    results: &Results,
    operation: &str,
    with: Circumstance,
    most: f64,
) -> Option<Verdict> {
    let row = results.find(operation, with)?;
    let ratio = row.ours.as_ref()?.ratio_to(row.floor.as_ref()?);
    Some(Verdict {
        title: row.title(),
        wanted: format!("at most {most}x the floor"),
        found: ratio.to_string(),
        floor: String::new(),
        kept: kept(ratio.value <= most, None),
    })
}

fn flat(results: &Results, operation: &str, most: f64) -> Option<Verdict> {
    let [many, few] = [MANY, FEW].map(|with| results.find(operation, with));
    let (many, few) = (many?, few?);
    let ratio = many.ours.as_ref()?.ratio_to(few.ours.as_ref()?);
    // The filesystem below has more to look after as well.
    let floor = many.floor.as_ref().zip(few.floor.as_ref());
    let floor = floor.map(|(many, few)| many.median() / few.median());
    Some(Verdict {
        title: format!("{}, against 10", many.title()),
        wanted: format!("at most {most}x"),
        found: ratio.to_string(),
        floor: floor.map_or(String::new(), |floor| format!("{}x", digits(floor))),
        kept: kept(ratio.value <= most, floor.map(|floor| floor <= most)),
    })
}

fn memory(results: &Results, operation: &str, with: Circumstance, most: f64) -> Option<Verdict> {
    let row = results.find(operation, with)?;
    let resident = row.ours.as_ref().map(Series::median)?;
    Some(Verdict {
        title: row.title(),
        wanted: format!("under {most} MiB"),
        found: Figure(Unit::Bytes, resident).to_string(),
        floor: String::new(),
        kept: kept(resident < most * MIB, None),
    })
}

/// Rounds of fio differ by more than a loop device does from another of its kind. One that is as
/// fast has a ratio of about 1, and 1 lies in the interval; a wide interval alone is no excuse.
/// Nothing can be said of a ratio that two bare devices might have as well.
fn io(results: &Results) -> impl Iterator<Item = Verdict> {
    results.io.iter().map(|row| {
        let (ratio, control) = (row.to_bare_loops(), row.between_bare_loops());
        let is_met = ratio.high >= 1.0 && ratio.value >= LEAST_IO;
        let is_noise = ratio.value >= control.low.min(1.0 / control.high);
        let baseline = row.bare_loop.median() / row.bare_file.median();
        Verdict {
            title: row.job.to_owned(),
            wanted: "no slower than a bare loop device".to_owned(),
            found: ratio.to_string(),
            floor: format!(
                "bare loop device: {}x the bare file; a second one: {control} the first",
                digits(baseline)
            ),
            kept: if !is_met && is_noise { Kept::Indistinguishable } else { kept(is_met, None) },
        }
    })
}

#[cfg(test)]
mod tests;
