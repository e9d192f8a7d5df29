//! Running lvm on one volume group.
//!
//! A command that changes something is never killed, as it may have suspended a device; one that reads is given a time,
//! and an error after it, so that a disk that hangs keeps no thread. Many volumes are in one report: no command is run
//! for each of them.

use std::time::Duration;

use orlop_model::{Error, Result};
use orlop_sys::tool::{self, Queries};

use super::failure::{cannot, exported, refused};
use super::layout::GroupName;
use super::report::{self, GroupReport};

const LVM: &str = "lvm";

#[derive(Debug)]
pub(super) struct Lvm {
    group: GroupName,
    settings: String,
    queries: Queries,
}

impl Lvm {
    /// `settings` are lvm.conf's, and come before the file; `limit` is the time that a report may take.
    pub(super) fn new(group: GroupName, settings: &str, limit: Duration) -> Self {
        let settings = format!("{} {settings}", report::SETTINGS);
        Self { group, settings, queries: Queries::new(limit) }
    }

    pub(super) fn group(&self) -> &GroupName {
        &self.group
    }

    pub(super) fn report(&self) -> Result<GroupReport> {
        let reading = || format!("read the volume group {}", self.group);
        let arguments = self.with_settings(report::arguments(self.group.as_str()));
        let ended = self.queries.run(LVM, arguments).map_err(cannot(reading))?;
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
        let ended = tool::run_to_end(LVM, self.with_settings(all)).map_err(cannot(&doing))?;
        if !ended.status.success() {
            return Err(refused(doing, &ended));
        }
        if !ended.stderr.is_empty() {
            tracing::debug!(command, stderr = ended.stderr, "lvm has warned");
        }
        Ok(())
    }

    fn with_settings<'a>(&'a self, arguments: Vec<&'a str>) -> impl Iterator<Item = &'a str> {
        arguments.into_iter().chain(["--config", &self.settings])
    }
}

#[cfg(test)]
mod tests;
