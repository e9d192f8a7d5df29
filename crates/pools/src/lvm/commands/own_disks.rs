//! The disks of the volume group. A command of LVM reads the labels of all disks that it may see, so without a choice of
//! disks one that hangs would hold up the commands for every volume group of the machine.
//!
//! The choice is that of the last report in which no disk was missing. A command that fails with it is tried again
//! without: an operator may have added a disk, or a disk may have another name since it was plugged in again.

use std::process::ExitStatus;
use std::sync::Mutex;

use crate::poison::lock;

/// The exit status of lvm (`EINVALID_CMD_LINE`).
const UNKNOWN_OPTION: i32 = 3;

#[derive(Debug, Default)]
pub(super) struct OwnDisks {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// As `--devices` takes them. `None`: not known yet, or no longer right.
    paths: Option<String>,
    /// LVM before 2.03.12 has no such option.
    is_refused: bool,
}

impl OwnDisks {
    pub(super) fn choice(&self) -> Option<String> {
        let known = lock(&self.known);
        known.paths.clone().filter(|_| !known.is_refused)
    }

    /// By a report without a choice.
    pub(super) fn learn(&self, disks: &[String]) {
        // LVM has a name in brackets for a disk that is missing.
        let all_are_there = !disks.is_empty() && disks.iter().all(|disk| disk.starts_with('/'));
        let separable = disks.iter().all(|disk| !disk.contains(','));
        lock(&self.known).paths = (all_are_there && separable).then(|| disks.join(","));
    }

    pub(super) fn forget(&self) {
        lock(&self.known).paths = None;
    }

    /// How a report with the choice has ended.
    pub(super) fn note_end(&self, status: &ExitStatus) {
        if status.code() == Some(UNKNOWN_OPTION) {
            tracing::warn!(
                "this version of LVM cannot be limited to the disks of one volume group: a disk of another that does not \
                 answer holds up its commands; LVM 2.03.12 and later can"
            );
            lock(&self.known).is_refused = true;
        }
    }
}

#[cfg(test)]
mod tests;
