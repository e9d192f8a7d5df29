//! What is promised, what is about to be, and how much room that leaves.
//!
//! Where a number cannot be exact it errs towards less room: files are gone before their space
//! counts as free, and a new promise counts before its reservation is given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_model::{PoolCapacity, Provisioning, Result};
use orlop_sys::file::{self, BackingKind, Space};

use super::failure::Doing;
use super::room::{Demand, Floor, Room};
use super::store::Store;
use crate::poison::lock;

/// How long a measurement of the pool's files serves. It costs a stat for each of them, so that
/// creating one volume must not need one; refusing does.
const MEASUREMENT_SERVES: Duration = Duration::from_secs(5);

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
    /// What the data of drafts takes: the pool's, though on no shelf yet.
    staged: u128,
    measured: Option<Measurement>,
}

/// What the pool's files took at a moment, carried on by what was made and deleted since.
///
/// Bytes that several files share are on the disk once, but promised to each of them, as each may
/// need its own in the end. Hence a copy counts only what it has beyond what it was cut from. What
/// it wrote over since is not known and left out, too; that errs towards less room.
#[derive(Debug, Clone, Copy)]
struct Measurement {
    used: u128,
    /// Free space and `used` together. Writing to a volume moves bytes from one to the other, so
    /// an old `used` would count bytes twice that were discarded since: the sum must not rise.
    owned: u128,
    taken: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Recent,
    Exact,
}

impl Ledger {
    pub(super) fn new(floor: Floor, overcommit_percent: u32, promised: u128) -> Self {
        Self {
            floor,
            overcommit_percent,
            promised,
            reserved: 0,
            earmarked: 0,
            staged: 0,
            measured: None,
        }
    }

    pub(super) fn promise(&mut self, bytes: u64) {
        self.promised += u128::from(bytes);
    }

    pub(super) fn release_promise(&mut self, bytes: u64) {
        self.promised = self.promised.saturating_sub(u128::from(bytes));
    }

    /// The pool's files have taken this much more of free space.
    pub(super) fn note_stored(&mut self, own: u64) {
        if let Some(measured) = &mut self.measured {
            measured.used += u128::from(own);
        }
    }

    pub(super) fn note_removed(&mut self, own: u64) {
        if let Some(measured) = &mut self.measured {
            measured.used = measured.used.saturating_sub(u128::from(own));
        }
    }

    fn reserve(&mut self, demand: &Demand) {
        self.reserved += u128::from(demand.promise);
        self.earmarked += u128::from(demand.physical);
    }

    /// The data of a draft is on a shelf now.
    pub(super) fn note_shelved(&mut self, reservation: &mut Reservation) {
        let written = std::mem::take(&mut reservation.written);
        self.staged = self.staged.saturating_sub(u128::from(written));
    }

    fn room(&self, space: &Space, measured: &Measurement, largest_file: u64) -> Room {
        let owned = (u128::from(space.free) + measured.used)
            .min(measured.owned)
            .min(u128::from(space.total));
        Room {
            total: space.total,
            free: space.free,
            floor: self.floor.of(space.total),
            owned,
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
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// What was to be taken at once is taken: free space tells it now.
    pub(super) fn note_written(&mut self, allocated: u64, shared: u64) {
        let physical = std::mem::take(&mut self.physical);
        let own = allocated.saturating_sub(shared);
        self.written = own;
        self.shared = shared;
        let mut ledger = lock(&self.store.ledger);
        ledger.earmarked = ledger.earmarked.saturating_sub(u128::from(physical));
        ledger.staged += u128::from(own);
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
        ledger.staged = ledger.staged.saturating_sub(u128::from(self.written));
        ledger.note_removed(self.written);
    }
}

impl Store {
    pub(super) fn try_reserve(self: &Arc<Self>, demand: Demand) -> Result<Reservation> {
        let mut ledger = lock(&self.ledger);
        let room = self.room(&mut ledger, Freshness::Recent)?;
        room.check_ever_possible(&self.name, &demand)?;
        if room.check(&self.name, &demand).is_err() {
            let room = self.room(&mut ledger, Freshness::Exact)?;
            room.check(&self.name, &demand)?;
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

    pub(super) fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        self.check_health()?;
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
            return Ok(Some(format!("pool {} has no inode left for any further file", self.name)));
        }
        let nothing = Measurement { used: 0, owned: 0, taken: Instant::now() };
        let room = lock(&self.ledger).room(&space, &nothing, 0);
        Ok(room.is_below_floor().then(|| room.below_floor(&self.name)))
    }

    fn room(&self, ledger: &mut Ledger, freshness: Freshness) -> Result<Room> {
        let recent =
            ledger.measured.filter(|measured| measured.taken.elapsed() < MEASUREMENT_SERVES);
        let measured = match (freshness, recent) {
            (Freshness::Recent, Some(measured)) => measured,
            (Freshness::Recent, None) | (Freshness::Exact, _) => {
                let measured = self.measure(ledger.staged)?;
                *ledger.measured.insert(measured)
            }
        };
        Ok(ledger.room(&self.space()?, &measured, self.largest_file()))
    }

    /// Volumes are written and discarded while their files are looked at; the smaller of the
    /// free spaces before and after counts no byte twice.
    fn measure(&self, staged: u128) -> Result<Measurement> {
        let before = self.space()?.free;
        let used = self.volumes.all_own_bytes() + self.snapshots.all_own_bytes() + staged;
        let after = self.space()?.free;
        Ok(Measurement { used, owned: used + u128::from(before.min(after)), taken: Instant::now() })
    }

    pub(super) fn space(&self) -> Result<Space> {
        let reading = || format!("read the free space of pool {}", self.name);
        let mut space = file::space(self.layout.root()).doing(reading)?;
        if let Some(managed) = &self.managed {
            // The image is sparse: what is free in it must still be found around it.
            space.free = space.free.min(managed.space_around().doing(reading)?.free);
        }
        Ok(space)
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
