//! Running lvm on one volume group.
//!
//! A command that changes something is never killed, as it may have suspended a device; one that reads is given a time,
//! and an error after it, so that a disk that hangs keeps no thread. Many volumes are in one report: no command is run
//! for each of them, and callers that ask at the same time share one (`shared_report.rs`).

mod progress;
mod shared_report;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use orlop_model::{Error, Result};
use orlop_sys::tool::{self, Queries};

use super::failure::{cannot, exported, refused};
use super::layout::GroupName;
use super::report::{self, GroupReport};
use progress::Progress;
use shared_report::SharedReport;
use turns::Turns;

const LVM: &str = "lvm";
/// How old a report may be that answers for many volumes one after the other: orchestrators ask for one at a time.
const RECENT: Duration = Duration::from_secs(15);
/// Commands of LVM wait for each other, and one of them takes far less.
const LONGEST_COMMAND: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Lvm {
    group: GroupName,
    settings: String,
    queries: Queries,
    reports: SharedReport,
    turns: Turns,
    changes: Progress,
    /// Has a lock by each command that changes something, also after the end of this process.
    commands_lock: OnceLock<PathBuf>,
}

impl Lvm {
    /// `settings` are lvm.conf's, and come before the file; `limit` is the time that a report may take.
    pub(super) fn new(group: GroupName, settings: &str, limit: Duration) -> Self {
        Self {
            group,
            settings: format!("{} {settings}", report::SETTINGS),
            queries: Queries::new(limit),
            reports: SharedReport::default(),
            turns: Turns::default(),
            changes: Progress::default(),
            commands_lock: OnceLock::new(),
        }
    }

    pub(super) fn group(&self) -> &GroupName {
        &self.group
    }

    /// From now on commands hold a lock on this file, so that the next daemon can wait for those of this one.
    pub(super) fn lock_commands(&self, file: &Path) {
        self.commands_lock.get_or_init(|| file.to_owned());
    }

    /// Of a time after the call.
    pub(super) fn report(&self) -> Result<Arc<GroupReport>> {
        self.reports.get(|| self.read_report())
    }

    /// Of the last seconds, with all that this process has changed.
    pub(super) fn recent_report(&self) -> Result<Arc<GroupReport>> {
        self.reports.recent(RECENT, || self.read_report())
    }

    /// Something else than a command of LVM has changed what reports show.
    pub(super) fn forget_reports(&self) {
        self.reports.forget();
    }

    fn read_report(&self) -> Result<GroupReport> {
        let reading = || format!("read the volume group {}", self.group);
        let arguments = self.with_settings(report::arguments(self.group.as_str()));
        let turn = self.turns.begin_report();
        let ended = self.queries.run(LVM, arguments).map_err(cannot(reading))?;
        drop(turn);
        if !ended.status.success() {
            return Err(refused(reading, &ended));
        }
        let malformed = |reason| Error::failed(reading(), format!("the report of lvm: {reason}"));
        let report = GroupReport::parse(&ended.stdout).map_err(malformed)?;
        match report.group.is_exported() {
            true => Err(exported(reading())),
            false => Ok(report),
        }
    }

    /// Runs a command that changes something, with all that it asks answered by yes.
    pub(super) fn change<S: AsRef<str>>(
        &self,
        doing: impl Fn() -> String,
        command: &str,
        arguments: &[S],
    ) -> Result<()> {
        let mut all = vec![command, "--yes"];
        all.extend(arguments.iter().map(AsRef::as_ref));
        let turn = self.turns.begin_change();
        let under_way = self.changes.begin();
        let ended = match self.commands_lock.get() {
            Some(file) => tool::run_to_end_locking(file, LVM, self.with_settings(all)),
            None => tool::run_to_end(LVM, self.with_settings(all)),
        };
        drop((under_way, turn));
        self.reports.forget();
        let ended = ended.map_err(cannot(&doing))?;
        if !ended.status.success() {
            return Err(refused(doing, &ended));
        }
        if !ended.stderr.is_empty() {
            tracing::debug!(command, stderr = ended.stderr, "lvm has warned");
        }
        Ok(())
    }

    /// Returns when commands are not waiting for something without end.
    pub(super) fn wait_for_progress(&self) {
        self.changes.wait(LONGEST_COMMAND);
    }

    fn with_settings<'a>(&'a self, arguments: Vec<&'a str>) -> impl Iterator<Item = &'a str> {
        arguments.into_iter().chain(["--config", &self.settings])
    }
}

#[cfg(test)]
mod tests;
