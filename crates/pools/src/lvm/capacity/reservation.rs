//! What calls that are under way are to get, so that nothing else is promised the same space.

use std::sync::Arc;

use super::LvmCapacity;
use crate::poison::lock;

/// In bytes.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    pub(super) thin: u128,
    pub(super) thick: u64,
}

/// What something new needs of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lvm) enum Demand {
    /// A thin volume, or growth of one: so much is promised.
    Thin(u64),
    /// Shares all its blocks. Each may have to be copied when it is written, and no space is promised for that.
    Snapshot,
    /// A thick volume, or growth of one: so many bytes in extents of the volume group, on so many disks.
    Thick { extents: u64, disks: usize },
}

impl Reserved {
    pub(super) fn add(&mut self, demand: Demand) {
        match demand {
            Demand::Thin(bytes) => self.thin += u128::from(bytes),
            Demand::Snapshot => {}
            Demand::Thick { extents, .. } => self.thick = self.thick.saturating_add(extents),
        }
    }

    fn release(&mut self, demand: Demand) {
        match demand {
            Demand::Thin(bytes) => self.thin = self.thin.saturating_sub(u128::from(bytes)),
            Demand::Snapshot => {}
            Demand::Thick { extents, .. } => self.thick = self.thick.saturating_sub(extents),
        }
    }
}

/// Space that a draft holds until it is committed or dropped.
#[derive(Debug)]
pub(in crate::lvm) struct Reservation {
    pub(super) capacity: Arc<LvmCapacity>,
    pub(super) demand: Demand,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if matches!(self.demand, Demand::Thick { .. }) {
            // Its extents were free in the numbers that are known.
            *lock(&self.capacity.group) = None;
        }
        lock(&self.capacity.reserved).release(self.demand);
    }
}
