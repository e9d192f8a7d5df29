//! How much of the pool is promised, taken and left.
//!
//! Every change of the ledger goes through here, so that the ledger and the catalogue change together:
//! the lock of the ledger is always taken before that of an index.

mod ledger;
mod usage_scan;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlop_model::{Bytes, Error, PoolCapacity, PoolSpace, Provisioning, Result, VolumeRecord};
use orlop_sys::file::{BackingKind, Space};

use super::PoolDirectory;
use super::catalogue::{Account, ImageCatalogue, ObjectIndex, StoredRecord};
use crate::poison::lock;
use crate::shortage::{Change, Shortage};
pub(super) use ledger::Demand;
pub use ledger::Floor;
use ledger::{Headroom, Ledger};
use usage_scan::Scanner;

/// ext4 counts a file's blocks of 4 KiB with 32 bits.
const LARGEST_EXT4_FILE: u64 = (16 << 40) - 4096;
/// More than any volume may have.
const LARGEST_OTHER_FILE: u64 = 1 << 60;

/// How long a question for the capacity waits for a usage scan that it has begun, or found at work.
const SCAN_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 500 });

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Recent,
    Exact,
}

/// What enlarges a pool in a directory, for messages.
const ENLARGE_FILESYSTEM: &str = "free other space on its filesystem, or enlarge that filesystem";
/// The same for a managed pool.
pub(super) const ENLARGE_IMAGE: &str =
    "set a larger ORLOP_POOL_IMAGE_SIZE and restart the daemon, also while volumes are mounted";

#[derive(Debug)]
pub(super) struct ImageCapacity {
    directory: Arc<PoolDirectory>,
    catalogue: Arc<ImageCatalogue>,
    ledger: Mutex<Ledger>,
    scanner: Scanner,
    floor: Floor,
    shortage: Shortage,
}

impl ImageCapacity {
    /// What all files take is known: it was read with the catalogue.
    pub(super) fn open(
        directory: Arc<PoolDirectory>,
        catalogue: Arc<ImageCatalogue>,
        floor: Floor,
        overcommit_percent: u32,
    ) -> Result<Arc<Self>> {
        let (volumes, snapshots) = (catalogue.volume_index(), catalogue.snapshot_index());
        let promised = volumes.charges() + snapshots.charges();
        let used = volumes.own_bytes() + snapshots.own_bytes();
        let ledger = Ledger::new(floor, overcommit_percent, promised, used);
        let capacity = Arc::new(Self {
            directory,
            catalogue,
            ledger: Mutex::new(ledger),
            scanner: Scanner::default(),
            floor,
            shortage: Shortage::default(),
        });
        capacity.note_opening_usage()?;
        Ok(capacity)
    }

    /// Afterwards no scan reads the pool's files any more.
    pub(super) fn wait_for_scan(&self) {
        self.scanner.wait();
    }

    fn name(&self) -> &str {
        self.directory.name()
    }

    pub(super) fn try_reserve(self: &Arc<Self>, demand: Demand) -> Result<Reservation> {
        let mut ledger = lock(&self.ledger);
        let room = self.headroom(&mut ledger, Freshness::Recent)?;
        room.check_ever_possible(self.name(), &demand)?;
        if let Err(refusal) = room.check(self.name(), &demand) {
            // Otherwise each of many callers that a full pool refuses would scan all its files.
            if self.was_refused(&mut ledger, &demand)? {
                return Err(refusal);
            }
            let room = self.headroom(&mut ledger, Freshness::Exact)?;
            room.check(self.name(), &demand)?;
        }
        ledger.reserve(demand.promise, demand.physical);
        Ok(Reservation {
            capacity: Arc::clone(self),
            promise: demand.promise,
            physical: demand.physical,
            written: 0,
            shared: 0,
        })
    }

    /// Has a scan of a moment ago shown that there is no room for this?
    fn was_refused(&self, ledger: &mut Ledger, demand: &Demand) -> Result<bool> {
        let space = self.space()?;
        let Some(owned) = ledger.scan().owned_at_most(space.free) else {
            return Ok(false);
        };
        let room = ledger.headroom_of(&space, owned, self.largest_file());
        Ok(room.check(self.name(), demand).is_err())
    }

    pub(super) fn available(self: &Arc<Self>, provisioning: Provisioning) -> Result<PoolCapacity> {
        self.check_writable()?;
        if self.space()?.is_out_of_inodes() {
            return Ok(PoolCapacity { available_bytes: 0, largest_volume: 0 });
        }
        let room = self.headroom(&mut lock(&self.ledger), Freshness::Recent)?;
        // Without this wait, a caller that asks every minute gets an answer that is a minute old.
        if self.has_scanned_within(SCAN_TIMEOUT) {
            let room = self.headroom(&mut lock(&self.ledger), Freshness::Recent)?;
            return Ok(room.capacity(provisioning));
        }
        Ok(room.capacity(provisioning))
    }

    pub(super) fn figures(self: &Arc<Self>) -> Result<PoolSpace> {
        let available = self.available(Provisioning::Thin)?.available_bytes;
        let space = self.space()?;
        let (volumes, snapshots) = (self.catalogue.volume_index(), self.catalogue.snapshot_index());
        let shared = volumes.bytes_in_common() + snapshots.bytes_in_common();
        let shared = Some(u64::try_from(shared).unwrap_or(u64::MAX));
        let ledger = lock(&self.ledger);
        Ok(PoolSpace { available, shared, ..ledger.figures(&space) })
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
        let room = lock(&self.ledger).headroom(&space, 0, 0).enlarged_by(self.enlarging());
        Ok(room.is_below_floor().then(|| room.below_floor(self.name())))
    }

    /// Whether so many bytes more can be written to what exists, for which the floor does not count.
    pub(super) fn check_takes(&self, object: &str, bytes: u64) -> Result<()> {
        let free = self.space()?.free;
        if free >= bytes {
            return Ok(());
        }
        Err(Error::exhausted(format!(
            "cannot write to {object}: that may take {} more of pool {}, which has {} free; delete \
             volumes or snapshots, run fstrim on mounted volumes in which files were deleted, or {}",
            Bytes(bytes),
            self.name(),
            Bytes(free),
            self.enlarging()
        )))
    }

    fn enlarging(&self) -> &'static str {
        match self.directory.managed() {
            Some(_) => ENLARGE_IMAGE,
            None => ENLARGE_FILESYSTEM,
        }
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        self.directory.check_takes_data()?;
        self.read_only()?.map_or(Ok(()), Err)
    }

    /// That its filesystem takes no writes, if it does not.
    pub(super) fn read_only(&self) -> Result<Option<Error>> {
        let refusal = || {
            Error::unreachable(
                format!("write to pool {}", self.name()),
                format!(
                    "the filesystem of {} is read-only; look for its errors in the kernel log",
                    self.directory.root().display()
                ),
            )
        };
        Ok(self.space()?.read_only.then(refusal))
    }

    fn headroom(self: &Arc<Self>, ledger: &mut Ledger, freshness: Freshness) -> Result<Headroom> {
        let owned = match (freshness, ledger.scan().last_owned()) {
            (Freshness::Recent, Some(owned)) => {
                if ledger.scan().is_due() {
                    self.start_scan(ledger);
                }
                owned
            }
            (Freshness::Recent, None) | (Freshness::Exact, _) => self.exactly_owned(ledger)?,
        };
        Ok(ledger
            .headroom(&self.space()?, owned, self.largest_file())
            .enlarged_by(self.enlarging()))
    }

    /// Orchestrators ask for health, capacity and statistics all the time, so a pool that fills up
    /// is noticed without a thread that watches it.
    fn space(&self) -> Result<Space> {
        let space = self.directory.space()?;
        self.note_shortage(&space);
        Ok(space)
    }

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
                 volumes fail once it is full; delete volumes or snapshots, run fstrim on mounted volumes \
                 in which files were deleted, or {}",
                self.enlarging()
            ),
            Some(Change::Over) => {
                tracing::info!(pool, %free, %floor, "the pool is above its floor again");
            }
            None => {}
        }
    }

    fn largest_file(&self) -> u64 {
        match self.directory.backing() {
            BackingKind::Ext4 => LARGEST_EXT4_FILE,
            BackingKind::Xfs
            | BackingKind::Btrfs
            | BackingKind::Tmpfs
            | BackingKind::Overlay
            | BackingKind::Other => LARGEST_OTHER_FILE,
        }
    }
}

/// Changes of the catalogue and the ledger together.
impl ImageCapacity {
    /// Something new is visible from now on. All of it at once, for callers that look; `before_visible` is
    /// done before any of them can.
    pub(super) fn enter_all<R: StoredRecord>(
        &self,
        index: &ObjectIndex<R>,
        objects: Vec<NewObject<'_, R>>,
        before_visible: impl FnOnce(),
    ) {
        let mut ledger = lock(&self.ledger);
        let enter = |NewObject { record, allocated, reservation }: NewObject<'_, R>| {
            // What was booked for an earlier creation that came to nothing.
            ledger.release(index.take_out(record.id()));
            let charge = record.charge(allocated);
            ledger.promise(charge);
            let own = reservation.hand_over();
            (record, Account { charge, own }, reservation.shared())
        };
        index.put_all(objects.into_iter().map(enter).collect(), before_visible);
    }

    /// A rename whose fsync failed was reported as a failure, but may well have happened. This
    /// takes in what it left.
    pub(super) fn adopt<R: StoredRecord>(&self, index: &ObjectIndex<R>, id: &R::Id) -> Result<()> {
        let mut ledger = lock(&self.ledger);
        if let Some(Account { charge, own }) = index.adopt(id)? {
            ledger.promise(charge);
            ledger.note_stored(own);
        }
        Ok(())
    }

    /// Books it as if it were there, until that is known.
    pub(super) fn enter_uncertain<R: StoredRecord>(
        &self,
        index: &ObjectIndex<R>,
        NewObject { record, allocated, reservation }: NewObject<'_, R>,
    ) {
        let mut ledger = lock(&self.ledger);
        if index.holds(record.id()) {
            return;
        }
        let charge = record.charge(allocated);
        ledger.promise(charge);
        let account = Account { charge, own: reservation.hand_over() };
        index.put_uncertain(record.id(), account, reservation.shared());
    }

    /// Releases what was booked for a creation that came to nothing, if it did.
    pub(super) fn forget_void<R: StoredRecord>(
        &self,
        index: &ObjectIndex<R>,
        id: &R::Id,
    ) -> Result<()> {
        let mut ledger = lock(&self.ledger);
        // Under the lock, as the same creation may be repeated, and its outcome be uncertain again.
        if index.is_void(id)? {
            ledger.release(index.take_out(id));
        }
        Ok(())
    }

    /// It is deleted, and its space is about to be free.
    pub(super) fn remove<R: StoredRecord>(&self, index: &ObjectIndex<R>, id: &R::Id) {
        let mut ledger = lock(&self.ledger);
        ledger.release(index.take_out(id));
    }

    /// The volume has grown by so much, and has taken `taken` bytes for that.
    pub(super) fn note_grown(&self, record: VolumeRecord, growth: u64, taken: u64) {
        let mut ledger = lock(&self.ledger);
        ledger.promise(growth);
        ledger.note_stored(taken);
        let charge = record.charge(0);
        self.catalogue.volume_index().replace(record, charge, taken);
    }
}

/// What a draft has become.
pub(super) struct NewObject<'a, R> {
    pub(super) record: R,
    /// What its data takes, shared or not.
    pub(super) allocated: u64,
    pub(super) reservation: &'a mut Reservation,
}

/// Space that a draft holds until it is committed or dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    capacity: Arc<ImageCapacity>,
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
        let mut ledger = lock(&self.capacity.ledger);
        ledger.release_reserved(0, physical);
        ledger.note_stored(own);
    }

    /// How much of what was written is shared with other objects.
    pub(super) fn shared(&self) -> u64 {
        self.shared
    }

    /// The data is in the catalogue now; returns what it takes.
    fn hand_over(&mut self) -> u64 {
        std::mem::take(&mut self.written)
    }
}

/// Comes after the draft's files are removed, if it was not committed.
impl Drop for Reservation {
    fn drop(&mut self) {
        let mut ledger = lock(&self.capacity.ledger);
        ledger.release_reserved(self.promise, self.physical);
        ledger.note_removed(self.written);
    }
}

#[cfg(test)]
mod tests;
