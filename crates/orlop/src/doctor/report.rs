//! What is printed, and the exit code.

use std::io::Write;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use orlop_pools::image::Inspection;
use serde::Serialize;

use super::examination::{Examination, PoolSeen};

/// Something is wrong; with `--repair`, still.
pub(crate) const FINDINGS: u8 = 1;
/// Something could not be looked at, or the configuration does not hold.
pub(crate) const COULD_NOT_LOOK: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RepairOutcome {
    Repairable,
    Repaired,
    Failed,
    ByHand,
}

#[derive(Serialize)]
pub(crate) struct Line {
    pub(crate) code: &'static str,
    /// How the health calls name it, for what they tell too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    pub(crate) subject: String,
    pub(crate) problem: String,
    pub(crate) remedy: String,
    pub(crate) outcome: RepairOutcome,
}

impl Line {
    /// `repairing` is what has to be said for a repair.
    pub(crate) fn text(&self, repairing: &str) -> String {
        let remedy = match self.outcome {
            RepairOutcome::Repairable => format!("{repairing} would {}", self.remedy),
            RepairOutcome::Repaired => format!("repaired: {}", self.remedy),
            RepairOutcome::Failed => format!("not repaired: {}", self.remedy),
            RepairOutcome::ByHand => format!("by hand: {}", self.remedy),
        };
        let reason = self.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{}: {}: {}{reason}; {remedy}", self.code, self.subject, self.problem)
    }
}

#[derive(Serialize)]
struct Document<'a> {
    pools: Vec<PoolDocument<'a>>,
    findings: &'a [Line],
    unseen: &'a [String],
    warnings: &'a [String],
}

#[derive(Serialize)]
struct PoolDocument<'a> {
    name: &'a str,
    at: &'a str,
    id: Option<String>,
    in_use: bool,
    volumes: usize,
    snapshots: usize,
    set_aside: usize,
}

impl<'a> PoolDocument<'a> {
    fn of(pool: &'a PoolSeen) -> Self {
        let inspection = pool.inspection.as_ref();
        Self {
            name: &pool.name,
            at: &pool.at,
            id: inspection.map(|it| it.id.to_string()),
            in_use: inspection.is_some_and(|it| it.in_use),
            volumes: inspection.map_or(0, |it| it.volumes.len()),
            snapshots: inspection.map_or(0, |it| it.snapshots),
            set_aside: inspection.map_or(0, |it| it.quarantined),
        }
    }
}

/// What to print at the end, and the exit code.
pub(super) fn conclude(
    examination: &Examination,
    lines: &[Line],
    json: bool,
    printer: &Printer,
) -> u8 {
    if json {
        let document = Document {
            pools: examination.pools.iter().map(PoolDocument::of).collect(),
            findings: lines,
            unseen: &examination.unseen,
            warnings: &examination.warnings,
        };
        let text = serde_json::to_string_pretty(&document);
        printer.say(text.unwrap_or_else(|error| error.to_string()));
    } else {
        let say = |line: String| printer.say(line);
        lines.iter().for_each(|line| say(line.text("--repair")));
        examination.warnings.iter().for_each(|what| say(format!("warning: {what}")));
        examination.unseen.iter().for_each(|what| say(format!("cannot inspect {what}")));
        if lines.is_empty() && examination.unseen.is_empty() {
            say("nothing inconsistent was found".to_owned());
        }
    }
    let is_left = |line: &Line| line.outcome != RepairOutcome::Repaired;
    if !examination.unseen.is_empty() {
        COULD_NOT_LOOK
    } else if lines.iter().any(is_left) {
        FINDINGS
    } else {
        0
    }
}

pub(super) fn summary(pool: &PoolSeen) -> String {
    let Some(inspection) = &pool.inspection else {
        return format!("pool {} in {}", pool.name, pool.at);
    };
    let mut text = format!(
        "pool {} at {}: id {}, {}",
        pool.name,
        pool.at,
        inspection.id,
        contents(inspection)
    );
    if inspection.in_use {
        text.push_str(", served by a daemon now");
    }
    if inspection.quarantined > 0 {
        text.push_str(&format!(", quarantined objects: {}", inspection.quarantined));
    }
    text
}

/// `1 volume, 2 snapshots`
pub(crate) fn contents(inspection: &Inspection) -> String {
    let counted = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let volumes = counted(inspection.volumes.len(), "volume");
    format!("{volumes}, {}", counted(inspection.snapshots, "snapshot"))
}

/// Pools and run directories are closed to other users, which is the usual reason for a failure.
pub(crate) fn hint_at_root() {
    if !rustix::process::geteuid().is_root() {
        // A closed stderr is no reason to change the exit code.
        let _ = writeln!(std::io::stderr(), "orlop: this was not run as root, which it needs");
    }
}

/// Prints from a thread: output that is not read, as in `| less`, must not keep the locks of pools, which
/// would keep a daemon from starting.
pub(crate) struct Printer {
    lines: Sender<String>,
    thread: JoinHandle<()>,
}

impl Printer {
    pub(crate) fn start() -> std::io::Result<Self> {
        let (lines, printed) = mpsc::channel::<String>();
        let print = move || {
            for line in printed {
                // A closed stdout is no reason to stop: repairs go on.
                let _ = writeln!(std::io::stdout(), "{line}");
            }
        };
        let thread = thread::Builder::new().name("print".to_owned()).spawn(print)?;
        Ok(Self { lines, thread })
    }

    /// Never waits.
    pub(crate) fn say(&self, line: impl Into<String>) {
        // The thread takes lines until there can be no more.
        let _ = self.lines.send(line.into());
    }

    /// Waits until all is read; to be called when no lock is held any more.
    pub(crate) fn finish(self) {
        drop(self.lines);
        let _ = self.thread.join();
    }
}
