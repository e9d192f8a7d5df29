//! Is the pool well, and is a volume?

use std::fs;
use std::os::unix::fs::MetadataExt;

use orlop_model::{Condition, Error, Result, VolumeId, VolumeRecord};

use super::failure::Doing;
use super::original::check_data;
use super::store::Store;
use crate::recorded::Recorded;

impl Store {
    pub(super) fn check_health(&self) -> Result<()> {
        self.check_present()?;
        if self.space()?.read_only {
            return Err(Error::failed(
                format!("check pool {}", self.name),
                format!(
                    "the filesystem of {} is read-only; look for its errors in the kernel log",
                    self.layout.root().display()
                ),
            ));
        }
        Ok(())
    }

    /// Is what we see the pool that was opened? While it is away nothing in it can be seen, which
    /// does not mean that nothing is there: whoever changes or misses something asks this first.
    pub(super) fn check_present(&self) -> Result<()> {
        let checking = || format!("check pool {}", self.name);
        self.marker.check()?;
        let root = self.layout.root();
        let there = fs::metadata(root).doing(checking)?;
        if there.dev() != self.filesystem {
            return Err(Error::failed(
                checking(),
                format!(
                    "the pool is gone: another filesystem is at {} than when it was opened; \
                     mount the right one or restart",
                    root.display()
                ),
            ));
        }
        Ok(())
    }

    pub(super) fn condition(&self, id: &VolumeId) -> Result<Condition> {
        let abnormal = |error: Error| Ok(Condition::abnormal(error.to_string()));
        let record = match self.volumes.get(id) {
            Ok(Some(record)) => record,
            Ok(None) => return Err(VolumeRecord::missing(id)),
            Err(damaged) => return abnormal(damaged),
        };
        if let Err(unwell) = self.check_health() {
            return abnormal(unwell);
        }
        if let Err(damaged) = check_data(&self.volumes, &record) {
            return abnormal(damaged);
        }
        match self.below_floor() {
            Ok(None) => Ok(Condition::healthy("the data is there, with room to write")),
            Ok(Some(reason)) => Ok(Condition::abnormal(reason)),
            Err(unwell) => abnormal(unwell),
        }
    }
}

#[cfg(test)]
mod tests;
