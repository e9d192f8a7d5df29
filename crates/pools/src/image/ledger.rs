//! What is promised, what is about to be, and how much room that leaves.
//!
//! Where a number cannot be exact it errs towards less room: files are gone before their space
//! counts as free, and a new promise counts before its reservation is given back.

use std::sync::Arc;

use orlop_model::{PoolCapacity, Provisioning, Result};
use orlop_sys::file::{self, BackingKind, Space};

use super::failure::Doing;
use super::room::{Bytes, Demand, Floor, Room};
use super::shelf::Booked;
use super::store::Store;
use super::survey::Survey;
use crate::poison::lock;
use crate::shortage::Change;

/// ext4 counts a file's blocks of 4 KiB with 32 bits.
const LARGEST_EXT4_FILE: u64 = (16 << 40) - 4096;
/// More than any volume may have.
const LARGEST_OTHER_FILE: u64 = 1 << 60;

/// Guarded by one lock, which is always taken before that of a shelf.
#[derive(Debug)]
pub(super) struct Ledger {
    floor: Floor,
    overcommit_percent: u32,
    promised: u128,
    reserved: u128,
    earmarked: u128,
    /// What the pool's files and drafts took when each was last looked at.
    ///
    /// Bytes that several files share are on the disk once, but promised to each of them, as each
    /// may need its own in the end. Hence a copy counts only what it has beyond what it was cut
    /// from. What it wrote over since is not known and left out, too; that errs towards less room.
    used: u128,
    /// All that was ever taken from `used` because it was deleted.
    pub(super) removed: u128,
    pub(super) survey: Survey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Recent,
    Exact,
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
            survey: Survey::default(),
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

    /// The pool's files have taken this much more of free space.
    pub(super) fn note_stored(&mut self, own: u64) {
        self.used += u128::from(own);
    }

    fn note_removed(&mut self, own: u64) {
        self.used = self.used.saturating_sub(u128::from(own));
        self.removed += u128::from(own);
    }

    /// A file was looked at again.
    pub(super) fn note_seen(&mut self, (before, now): (u64, u64)) {
        self.used = (self.used + u128::from(now)).saturating_sub(u128::from(before));
    }

    /// Something that was on a shelf is deleted.
    pub(super) fn release(&mut self, booked: Booked) {
        self.release_promise(booked.charge);
        self.note_removed(booked.own);
    }

    fn reserve(&mut self, demand: &Demand) {
        self.reserved += u128::from(demand.promise);
        self.earmarked += u128::from(demand.physical);
    }

    /// The data of a draft is on a shelf now; returns what it takes.
    pub(super) fn note_shelved(&mut self, reservation: &mut Reservation) -> u64 {
        std::mem::take(&mut reservation.written)
    }

    fn room(&self, space: &Space, owned_at_most: u128, largest_file: u64) -> Room {
        let owned = (u128::from(space.free) + self.used).min(owned_at_most);
        self.room_of(space, owned, largest_file)
    }

    fn room_of(&self, space: &Space, owned: u128, largest_file: u64) -> Room {
        Room {
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

/// Space that a draft holds until it is committed or dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    store: Arc<Store>,
    promise: u64,
    physical: u64,
    written: u64,
    shared: u64,
}

impl Reservation {
    /// What was to be taken at once is taken: free space tells it now.
    pub(super) fn note_written(&mut self, allocated: u64, shared: u64) {
        let physical = std::mem::take(&mut self.physical);
        let own = allocated.saturating_sub(shared);
        self.written = own;
        self.shared = shared;
        let mut ledger = lock(&self.store.ledger);
        ledger.earmarked = ledger.earmarked.saturating_sub(u128::from(physical));
        ledger.note_stored(own);
    }

    /// Of what was written, what something else has too.
    pub(super) fn shared(&self) -> u64 {
        self.shared
    }
}

/// Comes after the draft's files are removed, if it was not committed.
impl Drop for Reservation {
    fn drop(&mut self) {
        let mut ledger = lock(&self.store.ledger);
        ledger.reserved = ledger.reserved.saturating_sub(u128::from(self.promise));
        ledger.earmarked = ledger.earmarked.saturating_sub(u128::from(self.physical));
        ledger.note_removed(self.written);
    }
}

impl Store {
    pub(super) fn try_reserve(self: &Arc<Self>, demand: Demand) -> Result<Reservation> {
        let mut ledger = lock(&self.ledger);
        let room = self.room(&mut ledger, Freshness::Recent)?;
        room.check_ever_possible(self.name(), &demand)?;
        if let Err(refusal) = room.check(self.name(), &demand) {
            // Else each of many callers that a full pool refuses would look at all its files.
            if self.was_refused(&ledger, &demand)? {
                return Err(refusal);
            }
            let room = self.room(&mut ledger, Freshness::Exact)?;
            room.check(self.name(), &demand)?;
        }
        ledger.reserve(&demand);
        Ok(Reservation {
            store: Arc::clone(self),
            promise: demand.promise,
            physical: demand.physical,
            written: 0,
            shared: 0,
        })
    }

    /// Has a look of a moment ago shown that there is no room for this?
    fn was_refused(&self, ledger: &Ledger, demand: &Demand) -> Result<bool> {
        let space = self.space()?;
        let Some(owned) = ledger.survey.owned_at_most(space.free) else {
            return Ok(false);
        };
        let room = ledger.room_of(&space, owned, self.largest_file());
        Ok(room.check(self.name(), demand).is_err())
    }

    pub(super) fn capacity(self: &Arc<Self>, provisioning: Provisioning) -> Result<PoolCapacity> {
        self.check_writable()?;
        if self.space()?.is_out_of_inodes() {
            return Ok(PoolCapacity { available_bytes: 0, largest_volume: 0 });
        }
        let mut ledger = lock(&self.ledger);
        let room = self.room(&mut ledger, Freshness::Recent)?;
        Ok(room.capacity(provisioning))
    }

    /// Why nothing can be made now, if that is so. Asked for every volume in a list, so it does
    /// without a measurement.
    pub(super) fn below_floor(&self) -> Result<Option<String>> {
        let space = self.space()?;
        if space.is_out_of_inodes() {
            return Ok(Some(format!(
                "pool {} has no inode left for any further file",
                self.name()
            )));
        }
        let room = lock(&self.ledger).room(&space, 0, 0);
        Ok(room.is_below_floor().then(|| room.below_floor(self.name())))
    }

    fn room(self: &Arc<Self>, ledger: &mut Ledger, freshness: Freshness) -> Result<Room> {
        let owned = match freshness {
            Freshness::Recent => self.recently_owned(ledger)?,
            Freshness::Exact => self.exactly_owned(ledger)?,
        };
        Ok(ledger.room(&self.space()?, owned, self.largest_file()))
    }

    pub(super) fn space(&self) -> Result<Space> {
        let reading = || format!("read the free space of pool {}", self.name());
        let mut space = file::space(self.layout.root()).doing(reading)?;
        if let Some(managed) = &self.managed
            // In a sparse image, what is free must still be found around it.
            && let Some(around) = managed.space_around().doing(reading)?
        {
            space.free = space.free.min(around.free);
        }
        self.note_shortage(&space);
        Ok(space)
    }

    /// Orchestrators ask for health, capacity and statistics all the time, so a pool that fills up
    /// is noticed without a thread that watches it.
    fn note_shortage(&self, space: &Space) {
        let floor = self.floor.of(space.total);
        // A tenth of the floor, or half a percent where there is none.
        let clear = floor.saturating_add((floor / 10).max(space.total / 200));
        let is_short = space.free <= floor || space.is_out_of_inodes();
        let change = self.shortage.note(is_short, !is_short && space.free > clear);
        let (pool, free, floor) = (self.name(), Bytes(space.free), Bytes(floor));
        match change {
            Some(Change::Begun) => tracing::warn!(
                pool,
                %free,
                %floor,
                inodes_free = space.inodes_free,
                "the pool is below its floor: nothing is made or grown on it, and writes to its \
                 volumes fail once it is full; free some of its space or give it more"
            ),
            Some(Change::Over) => {
                tracing::info!(pool, %free, %floor, "the pool is above its floor again");
            }
            None => {}
        }
    }

    fn largest_file(&self) -> u64 {
        match self.backing {
            BackingKind::Ext4 => LARGEST_EXT4_FILE,
            BackingKind::Xfs
            | BackingKind::Btrfs
            | BackingKind::Tmpfs
            | BackingKind::Overlay
            | BackingKind::Other => LARGEST_OTHER_FILE,
        }
    }
}

#[cfg(test)]
mod tests;
