//! Running lvm on one volume group.
//!
//! A command that changes something is never killed, as it may have suspended a device; one that reads is given a time,
//! and an error after it, so that a disk that hangs keeps no thread. Many volumes are in one report: no command is run
//! for each of them, and callers that ask at the same time share one (`shared_report.rs`). Commands read the disks of the
//! volume group alone (`own_disks.rs`), so that those of others may hang.

mod own_disks;
mod progress;
mod shared_report;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlop_model::{Error, Result};
use orlop_sys::tool::{self, Ended, Queries};

use super::failure::{cannot, exported, refused};
use super::layout::GroupName;
use super::report::{self, GroupReport};
use crate::poison::lock;
use own_disks::OwnDisks;
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
    disks: OwnDisks,
    queries: Queries,
    reports: SharedReport,
    turns: Turns,
    changes: Progress,
    /// Has a lock by each command that changes something, also after the end of this process.
    commands_lock: Mutex<Option<PathBuf>>,
}

impl Lvm {
    /// `settings` are lvm.conf's, and come before the file; `limit` is the time that a report may take.
    pub(super) fn new(group: GroupName, settings: &str, limit: Duration) -> Self {
        Self {
            group,
            settings: format!("{} {settings}", report::SETTINGS),
            disks: OwnDisks::default(),
            queries: Queries::new(limit),
            reports: SharedReport::default(),
            turns: Turns::default(),
            changes: Progress::default(),
            commands_lock: Mutex::default(),
        }
    }

    pub(super) fn group(&self) -> &GroupName {
        &self.group
    }

    /// From now on commands hold a lock on this file, so that the next daemon can wait for those of this one.
    pub(super) fn lock_commands(&self, file: &Path) {
        *lock(&self.commands_lock) = Some(file.to_owned());
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
        if let Some(choice) = self.disks.choice() {
            let ended = self.query(Some(&choice))?;
            self.disks.note_end(&ended.status);
            let report = self.parsed(&ended);
            if report.as_ref().is_ok_and(|report| report.group.missing_disks == 0) {
                return report;
            }
            self.disks.forget();
        }
        let report = self.parsed(&self.query(None)?)?;
        self.disks.learn(&report.disks);
        Ok(report)
    }

    fn reading(&self) -> String {
        format!("read the volume group {}", self.group)
    }

    fn query(&self, choice: Option<&str>) -> Result<Ended> {
        let arguments = self.with_settings(report::arguments(self.group.as_str()), choice);
        let _turn = self.turns.begin_report();
        self.queries.run(LVM, arguments).map_err(cannot(|| self.reading()))
    }

    fn parsed(&self, ended: &Ended) -> Result<GroupReport> {
        if !ended.status.success() {
            return Err(refused(|| self.reading(), ended));
        }
        let malformed =
            |reason| Error::failed(self.reading(), format!("the report of lvm: {reason}"));
        let report = GroupReport::parse(&ended.stdout).map_err(malformed)?;
        match report.group.is_exported() {
            true => Err(exported(self.reading())),
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
        let choice = self.disks.choice();
        let mut ended = self.run_change(&all, choice.as_deref()).map_err(cannot(&doing))?;
        if !ended.status.success() && choice.is_some() && self.has_other_disks_than(&choice) {
            let choice = self.disks.choice();
            ended = self.run_change(&all, choice.as_deref()).map_err(cannot(&doing))?;
        }
        if !ended.status.success() {
            return Err(refused(doing, &ended));
        }
        if !ended.stderr.is_empty() {
            tracing::debug!(command, stderr = ended.stderr, "lvm has warned");
        }
        Ok(())
    }

    fn run_change(&self, all: &[&str], choice: Option<&str>) -> orlop_sys::Result<Ended> {
        let arguments = self.with_settings(all.to_vec(), choice);
        // First: what it waits for, such as a report that was asked for before, may not end either.
        let under_way = self.changes.begin();
        let turn = self.turns.begin_change();
        let commands_lock = lock(&self.commands_lock).clone();
        let ended = match commands_lock {
            Some(file) => tool::run_to_end_locking(&file, LVM, arguments),
            None => tool::run_to_end(LVM, arguments),
        };
        drop((turn, under_way));
        self.reports.forget();
        ended
    }

    /// Asked after a command that failed: then it found disks missing that it was not shown, and has changed nothing.
    fn has_other_disks_than(&self, choice: &Option<String>) -> bool {
        self.report().is_ok() && self.disks.choice() != *choice
    }

    /// Returns when commands are not waiting for something without end.
    pub(super) fn wait_for_progress(&self) {
        self.changes.wait(LONGEST_COMMAND);
    }

    fn with_settings<'a>(
        &'a self,
        arguments: Vec<&'a str>,
        choice: Option<&'a str>,
    ) -> impl Iterator<Item = &'a str> {
        let choice = choice.into_iter().flat_map(|disks| ["--devices", disks]);
        arguments.into_iter().chain(choice).chain(["--config", &self.settings])
    }
}

#[cfg(test)]
mod tests;
