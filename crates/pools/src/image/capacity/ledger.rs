//! What is promised, what is about to be, and how much room that leaves.
//!
//! Where a number cannot be exact it errs towards less room: files are gone before their space
//! counts as free, and a new promise counts before its reservation is given back.

use std::time::{Duration, Instant};

use orlop_model::{ALLOCATION_UNIT, Bytes, Error, PoolCapacity, PoolSpace, Provisioning, Result};
use orlop_sys::file::Space;

use super::ENLARGE_FILESYSTEM;
use crate::image::catalogue::Account;

/// A usage scan that is older is repeated.
pub(super) const MAX_SCAN_AGE: Duration = Duration::from_secs(5);
/// For this long after a scan, a demand that did not fit by any of its numbers is refused without another scan.
pub(super) const MAX_REFUSAL_AGE: Duration = Duration::from_secs(1);

/// What stays free: below it nothing new is promised, and every volume reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// Of the filesystem's size.
    Percent(u8),
    Bytes(u64),
}

impl Floor {
    pub(crate) fn of(self, total: u64) -> u64 {
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
    /// What enlarges the pool, for messages.
    pub(super) enlarging: &'static str,
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
    pub(super) fn enlarged_by(self, enlarging: &'static str) -> Self {
        Self { enlarging, ..self }
    }

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
             and what is promised to volumes already); delete volumes or snapshots, {}, or raise \
             its overcommit",
            Bytes(asked),
            Bytes(available),
            Bytes(self.free),
            Bytes(self.total),
            Bytes(self.floor),
            self.enlarging
        ))
    }

    pub(super) fn below_floor(&self, pool: &str) -> String {
        let enlarging = self.enlarging;
        format!(
            "pool {pool} is below its floor: {} free of {}, floor {}; delete volumes or snapshots, run \
             fstrim on mounted volumes in which files were deleted, {enlarging}, or lower the floor",
            Bytes(self.free),
            Bytes(self.total),
            Bytes(self.floor)
        )
    }
}

#[derive(Debug)]
pub(super) struct Ledger {
    floor: Floor,
    overcommit_percent: u32,
    promised: u128,
    reserved: u128,
    earmarked: u128,
    /// What the pool's files and drafts took when each was last measured.
    ///
    /// Bytes that several files share are on the disk once, but promised to each of them, as each
    /// may need its own in the end. Hence a copy counts only what it has beyond what it is a
    /// copy of. What it wrote over since is not known and left out, too; that errs towards less room.
    used: u128,
    /// All that was ever taken from `used` because it was deleted.
    removed: u128,
    scan: UsageScan,
}

impl Ledger {
    pub(super) fn new(floor: Floor, overcommit_percent: u32, promised: u128, used: u128) -> Self {
        Self {
            floor,
            overcommit_percent,
            promised,
            reserved: 0,
            earmarked: 0,
            used,
            removed: 0,
            scan: UsageScan::default(),
        }
    }

    pub(super) fn promise(&mut self, bytes: u64) {
        self.promised += u128::from(bytes);
    }

    fn release_promise(&mut self, bytes: u64) {
        self.promised = self.promised.saturating_sub(u128::from(bytes));
    }

    pub(super) fn used(&self) -> u128 {
        self.used
    }

    /// All that was ever removed.
    pub(super) fn removed(&self) -> u128 {
        self.removed
    }

    /// The pool's files have taken this much more of free space.
    pub(super) fn note_stored(&mut self, own: u64) {
        self.used += u128::from(own);
    }

    pub(super) fn note_removed(&mut self, own: u64) {
        self.used = self.used.saturating_sub(u128::from(own));
        self.removed += u128::from(own);
    }

    /// A file was measured again.
    pub(super) fn note_seen(&mut self, (before, now): (u64, u64)) {
        self.used = (self.used + u128::from(now)).saturating_sub(u128::from(before));
    }

    /// Something is deleted.
    pub(super) fn release(&mut self, account: Account) {
        self.release_promise(account.charge);
        self.note_removed(account.own);
    }

    pub(super) fn reserve(&mut self, promise: u64, physical: u64) {
        self.reserved += u128::from(promise);
        self.earmarked += u128::from(physical);
    }

    /// Reduces the reservations by what has been allocated or is not needed any more.
    pub(super) fn release_reserved(&mut self, promise: u64, physical: u64) {
        self.reserved = self.reserved.saturating_sub(u128::from(promise));
        self.earmarked = self.earmarked.saturating_sub(u128::from(physical));
    }

    pub(super) fn scan(&mut self) -> &mut UsageScan {
        &mut self.scan
    }

    pub(super) fn headroom(
        &self,
        space: &Space,
        owned_at_most: u128,
        largest_file: u64,
    ) -> Headroom {
        let owned = (u128::from(space.free) + self.used).min(owned_at_most);
        self.headroom_of(space, owned, largest_file)
    }

    /// All but what can still be promised, and what is shared.
    pub(super) fn figures(&self, space: &Space) -> PoolSpace {
        PoolSpace {
            size: Some(space.total),
            free: Some(space.free),
            stored: Some(saturated(self.used)),
            shared: None,
            floor: Some(self.floor.of(space.total)),
            promised: Some(saturated(self.promised)),
            reserved: Some(saturated(self.reserved)),
            overcommit_percent: Some(self.overcommit_percent),
            metadata_size: None,
            metadata_used: None,
            available: 0,
        }
    }

    pub(super) fn headroom_of(&self, space: &Space, owned: u128, largest_file: u64) -> Headroom {
        Headroom {
            enlarging: ENLARGE_FILESYSTEM,
            total: space.total,
            free: space.free,
            floor: self.floor.of(space.total),
            owned: owned.min(u128::from(space.total)),
            overcommit_percent: self.overcommit_percent,
            promised: self.promised + self.reserved,
            earmarked: self.earmarked,
            largest_file,
        }
    }
}

/// What the last scan of the files has shown; `usage_scan.rs` scans.
#[derive(Debug, Default)]
pub(super) struct UsageScan {
    last: Option<LastScan>,
    ceiling: Option<Ceiling>,
    under_way: bool,
}

#[derive(Debug, Clone, Copy)]
struct LastScan {
    /// Free space and what the files took together. Writing to a volume moves bytes from one to
    /// the other, so what was seen long ago would count bytes twice that were discarded since: the
    /// sum must not rise.
    owned: u128,
    at: Instant,
}

/// The most that free space and the files can have taken together when all files were scanned for a refusal.
#[derive(Debug, Clone, Copy)]
struct Ceiling {
    owned: u128,
    free: u64,
    at: Instant,
}

impl UsageScan {
    pub(super) fn begin(&mut self) {
        self.under_way = true;
    }

    pub(super) fn end(&mut self) {
        self.under_way = false;
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// What the last scan found serves until the next one has ended.
    pub(super) fn last_owned(&self) -> Option<u128> {
        self.last.map(|seen| seen.owned)
    }

    /// Is it time to scan again?
    pub(super) fn is_due(&self) -> bool {
        !self.under_way && self.last.is_some_and(|seen| seen.at.elapsed() >= MAX_SCAN_AGE)
    }

    /// What they can take together now at most, by the last scan for a refusal; `None` if that was
    /// too long ago. What volumes write moves bytes from one to the other; what other programs gave back
    /// since is free now.
    pub(super) fn owned_at_most(&self, free: u64) -> Option<u128> {
        let ceiling = self.ceiling.filter(|ceiling| ceiling.at.elapsed() < MAX_REFUSAL_AGE)?;
        Some(ceiling.owned + u128::from(free.saturating_sub(ceiling.free)))
    }

    pub(super) fn note(&mut self, owned: u128) -> u128 {
        self.last = Some(LastScan { owned, at: Instant::now() });
        owned
    }

    pub(super) fn note_ceiling(&mut self, owned: u128, free: u64) {
        self.ceiling = Some(Ceiling { owned, free, at: Instant::now() });
    }
}

#[cfg(test)]
impl UsageScan {
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Changes the time of the last scan.
    pub(super) fn change_time(&mut self, change: impl Fn(Instant) -> Instant) {
        let seen = self.last.as_mut().unwrap();
        seen.at = change(seen.at);
    }

    /// Changes the time of the last scan for a refusal.
    pub(super) fn change_refusal_time(&mut self, change: impl Fn(Instant) -> Instant) {
        let ceiling = self.ceiling.as_mut().unwrap();
        ceiling.at = change(ceiling.at);
    }

    pub(super) fn refusal_time(&self) -> Instant {
        self.ceiling.unwrap().at
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
