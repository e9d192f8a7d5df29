//! All figures of a run.

use std::fmt;
use std::time::Duration;

use crate::experiments::WAYS;
use crate::series::{Ratio, Series};
use crate::testbed::{Drivers, Testbed};

/// What an operation met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Circumstance {
    Usual,
    /// This many volumes were there already.
    Volumes(u64),
    /// The volume held this many bytes.
    Data(u64),
    Callers(u64),
}

impl fmt::Display for Circumstance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => Ok(()),
            Self::Volumes(count) => write!(formatter, "{} volumes", grouped(*count)),
            Self::Data(bytes) => formatter.write_str(&binary_size(*bytes)),
            Self::Callers(1) => formatter.write_str("1 caller"),
            Self::Callers(count) => write!(formatter, "{count} callers"),
        }
    }
}

/// 10,000
pub(crate) fn grouped(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        _ => format!("{},{:03}", grouped(count / 1000), count % 1000),
    }
}

pub(crate) fn binary_size(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", bytes >> 20),
        gibibytes => format!("{gibibytes} GiB"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Time,
    /// Operations a second: more is better.
    Rate,
    Bytes,
    /// Bytes a second: more is better.
    Throughput,
}

pub(crate) struct Row {
    pub(crate) operation: String,
    pub(crate) with: Circumstance,
    pub(crate) unit: Unit,
    pub(crate) ours: Option<Series>,
    pub(crate) peer: Option<Series>,
    pub(crate) floor: Option<Series>,
    pub(crate) note: Option<String>,
}

impl Row {
    pub(crate) fn noting(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    pub(crate) fn title(&self) -> String {
        match self.with {
            Circumstance::Usual => self.operation.clone(),
            with
            @ (Circumstance::Volumes(_) | Circumstance::Data(_) | Circumstance::Callers(_)) => {
                format!("{}, {with}", self.operation)
            }
        }
    }
}

pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) about: String,
    pub(crate) rows: Vec<Row>,
}

/// One kind of I/O, in operations or bytes a second.
pub(crate) struct IoRow {
    pub(crate) job: &'static str,
    pub(crate) unit: Unit,
    pub(crate) ours: Series,
    pub(crate) peer: Series,
    pub(crate) bare_loop: Series,
    pub(crate) second_loop: Series,
    pub(crate) bare_file: Series,
}

impl IoRow {
    /// To both bare devices at once.
    pub(crate) fn to_bare_loops(&self) -> Ratio {
        self.ours.ratio_by_round(&self.bare_loop.geometric_mean(&self.second_loop))
    }

    /// What two of the same making differ by is the disk's doing.
    pub(crate) fn between_bare_loops(&self) -> Ratio {
        self.second_loop.ratio_by_round(&self.bare_loop)
    }
}

/// One kind of I/O, by each of the ways to the same data.
pub(crate) struct QueueRow {
    pub(crate) job: &'static str,
    pub(crate) unit: Unit,
    pub(crate) figures: [Series; WAYS.len()],
}

#[derive(Default)]
pub(crate) struct Results {
    pub(crate) ours: String,
    pub(crate) peer: String,
    /// As tables and plots call it.
    pub(crate) peer_short: String,
    pub(crate) sections: Vec<Section>,
    pub(crate) bare_calls: Vec<(&'static str, Series)>,
    pub(crate) io: Vec<IoRow>,
    pub(crate) queues: Vec<QueueRow>,
    pub(crate) took: Duration,
}

impl Results {
    pub(crate) async fn new(drivers: &Drivers) -> Self {
        let testbed = Testbed::new(drivers).await;
        Self {
            ours: testbed.ours.name.clone(),
            peer: testbed.peer.name.clone(),
            peer_short: testbed.peer.short.clone(),
            ..Self::default()
        }
    }

    pub(crate) fn begin(&mut self, title: &'static str, about: impl Into<String>) {
        self.sections.push(Section { title, about: about.into(), rows: Vec::new() });
    }

    /// Into the section that was begun last.
    pub(crate) fn add(&mut self, row: Row) {
        println!("{}", crate::report::line(&row));
        self.sections.last_mut().expect("a section was begun").rows.push(row);
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sections.iter().flat_map(|section| &section.rows)
    }

    pub(crate) fn find(&self, operation: &str, with: Circumstance) -> Option<&Row> {
        self.rows().find(|row| row.operation == operation && row.with == with)
    }
}
