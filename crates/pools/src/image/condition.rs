//! Is the pool well, and is a volume?

use std::fs;
use std::os::unix::fs::MetadataExt;

use orlop_model::{Condition, Error, Result, VolumeId, VolumeRecord};
use orlop_sys::file;

use super::failure::Doing;
use super::original::check_length;
use super::store::Store;
use crate::recorded::Recorded;

impl Store {
    /// A person has to look at it, so Probe gives the reason: it is a failure, although calls that
    /// need what is missing are only asked to come again.
    pub(super) fn check_health(&self) -> Result<()> {
        match self.check_writable() {
            Err(Error::Unreachable { doing, reason }) => Err(Error::Failed { doing, reason }),
            checked => checked,
        }
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        self.check_present()?;
        if self.space()?.read_only {
            return Err(Error::Unreachable {
                doing: format!("check pool {}", self.name()),
                reason: format!(
                    "the filesystem of {} is read-only; look for its errors in the kernel log",
                    self.layout.root().display()
                ),
            });
        }
        Ok(())
    }

    pub(super) fn try_storage(&self) -> Result<()> {
        let staging = self.layout.staging();
        file::try_write(&staging).doing(|| format!("write to pool {}", self.name()))
    }

    /// Is what we see the pool that was opened? While it is away nothing in it can be seen, which
    /// does not mean that nothing is there: whoever changes or misses something asks this first.
    pub(super) fn check_present(&self) -> Result<()> {
        let checking = || format!("check pool {}", self.name());
        self.marker.check()?;
        let root = self.layout.root();
        let there = fs::metadata(root).doing(checking)?;
        if there.dev() != self.filesystem {
            return Err(Error::Unreachable {
                doing: checking(),
                reason: format!(
                    "the pool is gone: another filesystem is at {} than when it was opened; \
                     mount the right one or restart",
                    root.display()
                ),
            });
        }
        Ok(())
    }

    pub(super) fn condition(&self, id: &VolumeId) -> Result<Condition> {
        self.condition_within(id, &self.outlook())
    }

    pub(super) fn conditions(&self, ids: &[VolumeId]) -> Vec<Condition> {
        let outlook = self.outlook();
        let within = |id| self.condition_within(id, &outlook).unwrap_or_else(abnormal);
        ids.iter().map(within).collect()
    }

    fn outlook(&self) -> Outlook {
        match self.check_health().and_then(|()| self.below_floor()) {
            Ok(None) => Outlook::Well,
            Ok(Some(reason)) => Outlook::Full(reason),
            Err(error) => Outlook::Unwell(abnormal(error)),
        }
    }

    fn condition_within(&self, id: &VolumeId, outlook: &Outlook) -> Result<Condition> {
        let length = match self.volumes.length(id) {
            Ok(Some(length)) => length,
            Ok(None) => return Err(VolumeRecord::missing(id)),
            Err(damaged) => return Ok(abnormal(damaged)),
        };
        if let Outlook::Unwell(condition) = outlook {
            return Ok(condition.clone());
        }
        if let Err(damaged) = check_length(&self.volumes, id, length) {
            return Ok(abnormal(damaged));
        }
        Ok(match outlook {
            Outlook::Well => Condition::healthy("the data is there, with room to write"),
            Outlook::Full(reason) => Condition::abnormal(reason.clone()),
            Outlook::Unwell(condition) => condition.clone(),
        })
    }
}

/// What is so for all volumes of the pool.
enum Outlook {
    Well,
    /// A volume with damaged data has worse to tell.
    Full(String),
    /// Then nothing can be said of the data.
    Unwell(Condition),
}

fn abnormal(error: Error) -> Condition {
    Condition::abnormal(error.to_string())
}

#[cfg(test)]
mod tests;
