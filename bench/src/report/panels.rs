//! Which figures are plotted: small plots of the same scales, one for each operation.

use crate::results::{Circumstance, Results, Row, binary_size, grouped};
use crate::series::Series;

pub(crate) struct Panels {
    /// A part of the file's name.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) x_title: &'static str,
    pub(crate) peer: String,
    pub(crate) columns: usize,
    /// What is said at these places of the axis.
    pub(crate) x_marks: Vec<(f64, String)>,
    pub(crate) panels: Vec<Panel>,
}

pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
}

pub(crate) struct Line {
    pub(crate) who: Who,
    /// Seconds, in rising order of the axis.
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Orlop,
    Peer,
    Floor,
}

impl Who {
    pub(crate) const ALL: [Self; 3] = [Self::Orlop, Self::Peer, Self::Floor];

    fn of(self, row: &Row) -> Option<&Series> {
        match self {
            Self::Orlop => row.ours.as_ref(),
            Self::Peer => row.peer.as_ref(),
            Self::Floor => row.floor.as_ref(),
        }
    }
}

/// Those of which anything was measured.
pub(crate) fn all(results: &Results) -> Vec<Panels> {
    let volumes = Panels {
        name: "volumes",
        title: "Cost against the number of volumes",
        x_title: "volumes present",
        columns: 3,
        peer: results.peer_short.clone(),
        x_marks: marks(results, volumes_of, grouped),
        panels: panels(
            results,
            &[
                "create, block",
                "delete, block",
                "snapshot of an empty volume",
                "stage + publish, block",
                "stage + publish, mount",
                "list",
            ],
            volumes_of,
        ),
    };
    let sizes = Panels {
        name: "sizes",
        title: "Cost against the size of the volume's data",
        x_title: "data in the volume",
        columns: 3,
        peer: results.peer_short.clone(),
        x_marks: marks(results, bytes_of, binary_size),
        panels: panels(
            results,
            &[
                "snapshot, block",
                "restore, block",
                "clone, block",
                "snapshot, mount",
                "restore, mount",
                "clone, mount",
            ],
            bytes_of,
        ),
    };
    [volumes, sizes].into_iter().filter(|panels| !panels.panels.is_empty()).collect()
}

fn volumes_of(with: Circumstance) -> Option<u64> {
    match with {
        Circumstance::Volumes(count) => Some(count),
        Circumstance::Usual | Circumstance::Data(_) | Circumstance::Callers(_) => None,
    }
}

fn bytes_of(with: Circumstance) -> Option<u64> {
    match with {
        Circumstance::Data(bytes) => Some(bytes),
        Circumstance::Usual | Circumstance::Volumes(_) | Circumstance::Callers(_) => None,
    }
}

type Place = fn(Circumstance) -> Option<u64>;

fn marks(results: &Results, place: Place, name: fn(u64) -> String) -> Vec<(f64, String)> {
    let mut places: Vec<u64> = results.rows().filter_map(|row| place(row.with)).collect();
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|place| (float(place), name(place))).collect()
}

fn panels(results: &Results, operations: &[&str], place: Place) -> Vec<Panel> {
    let panel = |operation: &&str| {
        let lines =
            Who::ALL.map(|who| Line { who, points: points(results, operation, who, place) });
        let lines = lines.into_iter().filter(|line| !line.points.is_empty()).collect::<Vec<_>>();
        (!lines.is_empty()).then(|| Panel { title: (*operation).to_owned(), lines })
    };
    operations.iter().filter_map(panel).collect()
}

fn points(results: &Results, operation: &str, who: Who, place: Place) -> Vec<(f64, f64)> {
    let rows = results.rows().filter(|row| row.operation == operation);
    let mut points: Vec<(f64, f64)> =
        rows.filter_map(|row| Some((float(place(row.with)?), who.of(row)?.median()))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Exact up to a pebibyte, in mebibytes or as it is.
fn float(number: u64) -> f64 {
    let whole = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    whole(number >> 20) * 1_048_576.0 + whole(number & 0xF_FFFF)
}
