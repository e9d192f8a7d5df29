//! Enlarging the thin pool within its volume group, if the configuration allows that.
//!
//! LVM's own way is dmeventd, with thresholds in lvm.conf. Here the pool does it: no further daemon has to run, and what
//! was enlarged is known at once. Metadata goes before data, as a pool without metadata needs a repair, and one without data
//! only space. Each step is one `lvextend`, which LVM does or does not do.

mod extents;

use std::sync::{Arc, Mutex};

use orlop_model::{Bytes, Error, Result};

use super::commands::Lvm;
use super::making::ThinPoolSize;
use super::thin_status::{ThinStatus, Usage};
use crate::poison::lock;
pub(super) use extents::{Extents, Spread};

/// What LVM gives dm-thin at most (`DM_THIN_MAX_METADATA_SIZE`): 15.81 GiB.
pub(super) const MOST_METADATA: u64 = 16_192 << 20;

/// How a thin pool grows within its volume group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension {
    /// It is enlarged when more than this much of its data or metadata is used.
    pub at_percent: u32,
    /// By how much; in percent of its size.
    pub by: ThinPoolSize,
    /// Its data grows no further, in bytes.
    pub limit: Option<u64>,
}

impl Extension {
    /// How much the data can still grow: so much of the free extents as leaves the metadata, and its spare, one step.
    pub(super) fn room(&self, status: &ThinStatus, extents: Extents) -> u64 {
        let for_metadata = extents.taken_by_metadata(self.metadata_step(status.metadata, extents));
        let free = extents.data_in(extents.free.saturating_sub(for_metadata));
        let limit = self.limit.unwrap_or(u64::MAX).saturating_sub(status.data.size);
        extents.data_down(free.min(limit))
    }

    /// 0: it has all that dm-thin can use, or too few extents are free.
    fn metadata_step(&self, metadata: Usage, extents: Extents) -> u64 {
        // A size in bytes is meant for the data.
        let step = match self.by {
            ThinPoolSize::Percent(_) => self.by.of(metadata.size).max(1),
            ThinPoolSize::Bytes(_) => metadata.size / 4 + 1,
        };
        let most = extents.metadata_down(MOST_METADATA.saturating_sub(metadata.size));
        extents.metadata_up(step).min(most).min(extents.metadata_in_free())
    }

    /// What crosses the threshold, the metadata first; `least` is what the data has to grow at least.
    fn next(&self, status: &ThinStatus, extents: Extents, least: u64) -> Option<Growth> {
        let metadata = self.metadata_step(status.metadata, extents);
        if status.metadata.is_above(self.at_percent) && metadata > 0 {
            return Some(Growth::Metadata(metadata));
        }
        let wanted = match status.data.is_above(self.at_percent) || least > 0 {
            true => self.by.of(status.data.size).max(1).max(least),
            false => 0,
        };
        let bytes = extents.data_up(wanted).min(self.room(status, extents));
        (bytes > 0).then_some(Growth::Data(bytes))
    }

    /// Does the pool come near what crosses the threshold?
    pub(super) fn is_near(&self, status: &ThinStatus) -> bool {
        let near = self.at_percent.saturating_sub(10);
        status.data.is_above(near) || status.metadata.is_above(near)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growth {
    Data(u64),
    Metadata(u64),
}

#[derive(Debug)]
pub(super) struct ThinPoolExtender {
    lvm: Arc<Lvm>,
    pool: String,
    thin_pool: String,
    policy: Extension,
    /// One at a time: the next judges by what this one has made of the pool.
    running: Mutex<()>,
}

impl ThinPoolExtender {
    pub(super) fn new(lvm: &Arc<Lvm>, pool: &str, thin_pool: &str, policy: Extension) -> Self {
        Self {
            lvm: Arc::clone(lvm),
            pool: pool.to_owned(),
            thin_pool: thin_pool.to_owned(),
            policy,
            running: Mutex::default(),
        }
    }

    pub(super) fn policy(&self) -> &Extension {
        &self.policy
    }

    /// `false`: there is nothing to enlarge, or no way to. Otherwise it may have to be asked again, as one step was done.
    /// `numbers` are read while no other step is under way.
    pub(super) fn try_step(
        &self,
        least: u64,
        numbers: impl FnOnce() -> Result<(ThinStatus, Extents)>,
    ) -> Result<bool> {
        let _alone = lock(&self.running);
        let (status, extents) = numbers()?;
        let Some(growth) = self.policy.next(&status, extents, least) else { return Ok(false) };
        let (option, mut bytes, before) = match growth {
            Growth::Data(bytes) => ("--size", bytes, status.data),
            Growth::Metadata(bytes) => ("--poolmetadatasize", bytes, status.metadata),
        };
        let lv = self.lvm.group().lv(&self.thin_pool);
        let enlarging = || format!("enlarge the thin pool of pool {}", self.pool);
        loop {
            let size = format!("+{bytes}b");
            match self.lvm.change(enlarging, "lvextend", &[option, &size, &lv]) {
                // The free extents are not on the disks that it takes: some of them may be.
                Err(Error::Exhausted(_)) if bytes >= extents.size * 2 => {
                    bytes = extents.metadata_up(bytes / 2);
                }
                done => break done?,
            }
        }
        tracing::info!(
            pool = self.pool,
            thin_pool = %lv,
            option,
            by = %Bytes(bytes),
            used = %Bytes(before.used),
            of = %Bytes(before.size),
            "enlarged the thin pool"
        );
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
