//! What is printed, and the exit code.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use serde::Serialize;

use super::examination::{Examination, ExaminedPool};
use crate::inspection::Inspection;

/// Something is wrong; with `--repair`, still.
pub(crate) const FINDINGS: u8 = 1;
/// Something could not be examined, or the configuration is invalid.
pub(crate) const NOT_EXAMINED: u8 = 2;

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
    /// The pool that it is about, where that is not the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<String>,
    /// How the health calls name it, for what they tell too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    pub(crate) subject: String,
    pub(crate) problem: String,
    pub(crate) remedy: String,
    pub(crate) outcome: RepairOutcome,
}

impl Line {
    fn is_left(&self) -> bool {
        self.outcome != RepairOutcome::Repaired
    }

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
    /// Nothing is wrong, and all could be examined.
    sound: bool,
    pools: Vec<PoolDocument<'a>>,
    findings: &'a [Line],
    #[serde(rename = "unseen")]
    not_examined: &'a [String],
    warnings: &'a [String],
}

#[derive(Serialize)]
struct PoolDocument<'a> {
    name: &'a str,
    at: &'a str,
    id: Option<String>,
    sound: bool,
    in_use: bool,
    /// Of the daemon that served it last; `null` where it was not found.
    run_dir: Option<&'a Path>,
    volumes: usize,
    snapshots: usize,
    set_aside: usize,
}

impl<'a> PoolDocument<'a> {
    fn of(pool: &'a ExaminedPool, lines: &[Line]) -> Self {
        let inspection = pool.inspection.as_ref();
        Self {
            name: &pool.name,
            at: &pool.at,
            id: pool.id.as_ref().map(ToString::to_string),
            sound: pool.is_examined && findings_left(lines, Some(&pool.name)) == 0,
            in_use: inspection.is_some_and(|it| it.in_use),
            run_dir: pool.run_dir.as_ref().and_then(|run_dir| run_dir.path()),
            volumes: inspection.map_or(0, |it| it.volumes.len()),
            snapshots: inspection.map_or(0, |it| it.snapshots),
            set_aside: inspection.map_or(0, |it| it.quarantined),
        }
    }
}

/// All that was found, as one document.
pub(super) fn document(examination: &Examination, lines: &[Line]) -> String {
    let of_pool = |pool| PoolDocument::of(pool, lines);
    let document = Document {
        sound: exit_code(examination, lines) == 0,
        pools: examination.pools.iter().map(of_pool).collect(),
        findings: lines,
        not_examined: &examination.not_examined,
        warnings: &examination.warnings,
    };
    serde_json::to_string_pretty(&document).unwrap_or_else(|error| error.to_string())
}

/// The same in words, after what was said of each pool when it was examined.
pub(super) fn conclusion(examination: &Examination, lines: &[Line]) -> Vec<String> {
    let mut text: Vec<String> = lines.iter().map(|line| line.text("--repair")).collect();
    text.extend(examination.warnings.iter().map(|what| format!("warning: {what}")));
    text.extend(examination.not_examined.iter().map(|what| format!("cannot inspect {what}")));
    text.extend(examination.pools.iter().map(|pool| verdict(pool, lines)));
    text.push(verdict_of_machine(examination, lines));
    text
}

pub(super) fn exit_code(examination: &Examination, lines: &[Line]) -> u8 {
    if !examination.not_examined.is_empty() {
        NOT_EXAMINED
    } else if lines.iter().any(Line::is_left) {
        FINDINGS
    } else {
        0
    }
}

pub(super) fn summary(pool: &ExaminedPool) -> String {
    let Some(inspection) = &pool.inspection else {
        return format!("pool {} in {}", pool.name, pool.at);
    };
    let mut text = format!("pool {} at {}: id {}", pool.name, pool.at, inspection.id);
    if inspection.in_use {
        text.push_str(", served by a daemon now");
    }
    if inspection.quarantined > 0 {
        text.push_str(&format!(", quarantined objects: {}", inspection.quarantined));
    }
    text
}

/// Findings about a pool, or, with `None`, about the machine, that are not repaired.
fn findings_left(lines: &[Line], pool: Option<&str>) -> usize {
    lines.iter().filter(|line| line.pool.as_deref() == pool && line.is_left()).count()
}

/// `pool p1 (3fa9c2): sound, 12 volumes, 30 snapshots checked`
fn verdict(pool: &ExaminedPool, lines: &[Line]) -> String {
    let name = &pool.name;
    let id = pool.id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    let checked = pool.inspection.as_ref().map(|it| format!(", {} checked", contents(it)));
    let checked = checked.unwrap_or_default();
    let state = match findings_left(lines, Some(name)) {
        _ if !pool.is_examined => "could not be examined".to_owned(),
        0 => "sound".to_owned(),
        left => format!("not sound, {}", counted(left, "finding")),
    };
    format!("pool {name}{id}: {state}{checked}")
}

/// With the run directories, whose records were compared with it.
fn verdict_of_machine(examination: &Examination, lines: &[Line]) -> String {
    let paths: Vec<String> =
        examination.machine.iter().map(|directory| directory.path.display().to_string()).collect();
    let state = match findings_left(lines, None) {
        _ if paths.is_empty() => return "this machine: could not be examined".to_owned(),
        0 => "sound".to_owned(),
        left => format!("not sound, {}", counted(left, "finding")),
    };
    format!("this machine: {state}, by the records in {}", paths.join(", "))
}

fn counted(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

/// `1 volume, 2 snapshots`
pub(crate) fn contents(inspection: &Inspection) -> String {
    let volumes = counted(inspection.volumes.len(), "volume");
    format!("{volumes}, {}", counted(inspection.snapshots, "snapshot"))
}

/// Pools and run directories are closed to other users, which is the usual reason for a failure.
pub(crate) fn hint_at_root() {
    if !rustix::process::geteuid().is_root() {
        hint("cannot examine everything: this command needs root; run it as root");
    }
}

pub(crate) fn hint(text: &str) {
    // A closed stderr is no reason to change the exit code.
    let _ = writeln!(std::io::stderr(), "orlop: {text}");
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
