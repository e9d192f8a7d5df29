//! How much can be promised: the arithmetic, and nothing else.

use orlop_model::{ALLOCATION_UNIT, Bytes, Error, PoolCapacity, Provisioning, Result};

/// What stays free: below it nothing new is promised, and every volume reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// Of the filesystem's size.
    Percent(u8),
    Bytes(u64),
}

impl Floor {
    pub(in crate::image) fn of(self, total: u64) -> u64 {
        match self {
            Self::Percent(percent) => percent_of(total, u32::from(percent)),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// What something new would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::image) struct Demand {
    /// The length of the file in the end.
    pub(in crate::image) length: u64,
    /// What is promised in addition to what is promised already.
    pub(in crate::image) promise: u64,
    /// What is written or preallocated at once.
    pub(in crate::image) physical: u64,
    /// A snapshot that shares its extents takes nothing now; it may be made as long as the pool
    /// is above its floor, even if all space is promised.
    pub(in crate::image) must_fit: bool,
}

/// The numbers at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Headroom {
    pub(super) total: u64,
    pub(super) free: u64,
    pub(super) floor: u64,
    /// Free space and what the pool's own files take: all that its promises can be kept with.
    pub(super) owned: u128,
    pub(super) overcommit_percent: u32,
    pub(super) promised: u128,
    /// What begun drafts will still take of `free`.
    pub(super) earmarked: u128,
    pub(super) largest_file: u64,
}

impl Headroom {
    pub(super) fn is_below_floor(&self) -> bool {
        self.free <= self.floor
    }

    fn promisable(&self) -> u64 {
        if self.is_below_floor() {
            return 0;
        }
        let usable = self.owned.saturating_sub(u128::from(self.floor));
        let with_overcommit = usable.saturating_mul(u128::from(self.overcommit_percent)) / 100;
        saturated(with_overcommit.saturating_sub(self.promised))
    }

    fn takeable(&self) -> u64 {
        let above_floor = u128::from(self.free.saturating_sub(self.floor));
        saturated(above_floor.saturating_sub(self.earmarked))
    }

    fn available(&self, provisioning: Provisioning) -> u64 {
        match provisioning {
            Provisioning::Thin => self.promisable(),
            Provisioning::Thick => self.promisable().min(self.takeable()),
        }
    }

    pub(super) fn capacity(&self, provisioning: Provisioning) -> PoolCapacity {
        let available_bytes = self.available(provisioning);
        let largest = available_bytes.min(self.largest_file);
        PoolCapacity {
            available_bytes,
            largest_volume: largest / ALLOCATION_UNIT * ALLOCATION_UNIT,
        }
    }

    /// Refuses what could not be held by an empty pool either.
    pub(super) fn check_ever_possible(&self, pool: &str, demand: &Demand) -> Result<()> {
        let ever = percent_of(self.total, self.overcommit_percent).min(self.largest_file);
        if demand.must_fit && demand.length > ever {
            return Err(Error::OutOfRange(format!(
                "cannot reserve {} in pool {pool}: even when empty it holds at most {}",
                Bytes(demand.length),
                Bytes(ever)
            )));
        }
        Ok(())
    }

    pub(super) fn check(&self, pool: &str, demand: &Demand) -> Result<()> {
        if self.is_below_floor() {
            return Err(Error::exhausted(self.below_floor(pool)));
        }
        if !demand.must_fit {
            return Ok(());
        }
        if demand.promise > self.promisable() {
            return Err(self.lacks(pool, demand.promise, self.promisable()));
        }
        if demand.physical > self.takeable() {
            return Err(self.lacks(pool, demand.physical, self.takeable()));
        }
        Ok(())
    }

    fn lacks(&self, pool: &str, asked: u64, available: u64) -> Error {
        Error::exhausted(format!(
            "cannot reserve {} in pool {pool}: {} can be promised ({} free of {}, less the floor of {} \
             and what is promised to volumes already); delete volumes or snapshots, enlarge the \
             pool, or raise its overcommit",
            Bytes(asked),
            Bytes(available),
            Bytes(self.free),
            Bytes(self.total),
            Bytes(self.floor)
        ))
    }

    pub(super) fn below_floor(&self, pool: &str) -> String {
        format!(
            "pool {pool} is below its floor: {} free of {}, floor {}; free space on its filesystem, \
             enlarge it, or lower the floor",
            Bytes(self.free),
            Bytes(self.total),
            Bytes(self.floor)
        )
    }
}

fn percent_of(bytes: u64, percent: u32) -> u64 {
    saturated(u128::from(bytes) * u128::from(percent) / 100)
}

fn saturated(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
