//! Running lvm on one volume group.
//!
//! A command that changes something is never killed, as it may have suspended a device; one that reads is given a time,
//! and an error after it, so that a disk that hangs keeps no thread. Many volumes are in one report: no command is run
//! for each of them, and callers that ask at the same time share one (`shared_report.rs`). Commands read the disks of the
//! volume group alone (`own_disks.rs`), so that those of others may hang.

mod own_disks;
mod progress;
mod same_name;
mod shared_report;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result};
use orlop_sys::tool::{self, Ended, Queries};

use super::failure::{cannot, exported, is_refused_lock, is_refused_name, refused};
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
/// How long other programs may keep the volume group locked while writers wait for a copy. LVM's own commands take far less,
/// but one that asks a question keeps the lock until it is answered.
const LONGEST_LOCKED: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// For a command that writers wait for: without the lock it ends at once.
const WITHOUT_WAITING: &str = " global/wait_for_locks=0";
/// LVM reads the labels of all devices where it is given no choice, and a read of one that is suspended waits.
const PASSING_OVER_SUSPENDED: &str = " devices/ignore_suspended_devices=1";

#[derive(Debug)]
pub(super) struct Lvm {
    group: GroupName,
    settings: String,
    disks: OwnDisks,
    queries: Queries,
    reports: SharedReport,
    turns: Turns,
    changes: Progress,
    /// How many devices this process has suspended.
    suspended: AtomicUsize,
    /// Since when a command that did not wait for the volume group's lock was refused it.
    locked_since: Mutex<Option<Instant>>,
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
            suspended: AtomicUsize::new(0),
            locked_since: Mutex::default(),
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
        let ended = self.query(None)?;
        if is_refused_name(&ended)
            && let Some(report) = self.read_outside_of_volumes()?
        {
            return Ok(report);
        }
        let report = self.parsed(&ended)?;
        self.disks.learn(&report.disks);
        Ok(report)
    }

    /// Of the volume group whose name another one has as well, if that other one is in a volume. `None`: it is not.
    fn read_outside_of_volumes(&self) -> Result<Option<GroupReport>> {
        let selection = same_name::selection(self.group.as_str());
        let ended = self.query_with(same_name::arguments(&selection), None)?;
        let disks = same_name::parse(&ended.stdout).filter(|_| ended.status.success());
        let own = |disks| same_name::outside_of_volumes(disks, same_name::shows_a_volume);
        let Some(disks) = disks.and_then(own) else { return Ok(None) };
        self.disks.learn(&disks);
        let Some(choice) = self.disks.choice() else { return Ok(None) };
        tracing::warn!(
            group = %self.group,
            disks = choice,
            "a volume that is attached holds a volume group of the same name as that of the pool, and is passed over; \
             to keep LVM from looking into volumes, set `global_filter` in lvm.conf"
        );
        self.parsed(&self.query(Some(&choice))?).map(Some)
    }

    fn reading(&self) -> String {
        format!("read the volume group {}", self.group)
    }

    fn query(&self, choice: Option<&str>) -> Result<Ended> {
        self.query_with(report::arguments(self.group.as_str()), choice)
    }

    fn query_with(&self, arguments: Vec<&str>, choice: Option<&str>) -> Result<Ended> {
        let settings = self.settings_for(choice, Lock::Awaited);
        let arguments = with(&settings, arguments, choice);
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
        self.change_with(Lock::Awaited, doing, command, arguments)
    }

    /// The same of a command that writers wait for: it goes before those that are waiting here. If another program keeps the
    /// volume group locked, it is `Busy`, and nothing was done.
    pub(super) fn change_while_writers_wait<S: AsRef<str>>(
        &self,
        doing: impl Fn() -> String,
        command: &str,
        arguments: &[S],
    ) -> Result<()> {
        self.change_with(Lock::Tried, doing, command, arguments)
    }

    fn change_with<S: AsRef<str>>(
        &self,
        waiting: Lock,
        doing: impl Fn() -> String,
        command: &str,
        arguments: &[S],
    ) -> Result<()> {
        let mut all = vec![command, "--yes"];
        all.extend(arguments.iter().map(AsRef::as_ref));
        let run = |choice: Option<&str>| match waiting {
            Lock::Awaited => self.run_in_turn(&all, choice),
            Lock::Tried => self.run_first(&all, choice),
        };
        let choice = self.disks.choice();
        let mut ended = run(choice.as_deref()).map_err(cannot(&doing))?;
        if !ended.status.success()
            && !is_refused_lock(&ended)
            && choice.is_some()
            && self.has_other_disks_than(&choice)
        {
            ended = run(self.disks.choice().as_deref()).map_err(cannot(&doing))?;
        }
        if !ended.status.success() {
            return Err(refused(doing, &ended));
        }
        if !ended.stderr.is_empty() {
            tracing::debug!(command, stderr = ended.stderr, "lvm has warned");
        }
        Ok(())
    }

    fn run_in_turn(&self, all: &[&str], choice: Option<&str>) -> orlop_sys::Result<Ended> {
        // First: what it waits for, such as a report that was asked for before, may not end either.
        let _under_way = self.changes.begin();
        let _turn = self.turns.begin_change();
        self.run_change(all, choice, Lock::Awaited)
    }

    fn run_first(&self, all: &[&str], choice: Option<&str>) -> orlop_sys::Result<Ended> {
        let _under_way = self.changes.begin();
        let _turn = self.turns.begin_urgent();
        loop {
            let ended = self.run_change(all, choice, Lock::Tried)?;
            let is_locked = !ended.status.success() && is_refused_lock(&ended);
            let gives_up = self.is_locked_for_long(is_locked);
            if !is_locked || gives_up {
                return Ok(ended);
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Of all commands that were refused the lock since one got it, so that those that come later do not wait the whole time again.
    fn is_locked_for_long(&self, is_locked: bool) -> bool {
        let mut since = lock(&self.locked_since);
        if !is_locked {
            *since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() > LONGEST_LOCKED
    }

    fn run_change(
        &self,
        all: &[&str],
        choice: Option<&str>,
        waiting: Lock,
    ) -> orlop_sys::Result<Ended> {
        let settings = self.settings_for(choice, waiting);
        let arguments = with(&settings, all.to_vec(), choice);
        let commands_lock = lock(&self.commands_lock).clone();
        let ended = match commands_lock {
            Some(file) => tool::run_to_end_locking(&file, LVM, arguments),
            None => tool::run_to_end(LVM, arguments),
        };
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

    /// Until it is dropped, this process has a device suspended.
    pub(super) fn note_suspended(&self) -> SuspendedNote<'_> {
        self.suspended.fetch_add(1, Ordering::SeqCst);
        SuspendedNote(&self.suspended)
    }

    fn settings_for(&self, choice: Option<&str>, waiting: Lock) -> String {
        let has_suspended = self.suspended.load(Ordering::SeqCst) > 0;
        let waiting = match waiting {
            Lock::Awaited => "",
            Lock::Tried => WITHOUT_WAITING,
        };
        let passing_over =
            if choice.is_none() && has_suspended { PASSING_OVER_SUSPENDED } else { "" };
        [&self.settings, waiting, passing_over].concat()
    }
}

/// Does a command wait until it has the lock of the volume group?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Awaited,
    Tried,
}

pub(super) struct SuspendedNote<'a>(&'a AtomicUsize);

impl Drop for SuspendedNote<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn with<'a>(
    settings: &'a str,
    arguments: Vec<&'a str>,
    choice: Option<&'a str>,
) -> impl Iterator<Item = &'a str> {
    let choice = choice.into_iter().flat_map(|disks| ["--devices", disks]);
    arguments.into_iter().chain(choice).chain(["--config", settings])
}

#[cfg(test)]
mod tests;
