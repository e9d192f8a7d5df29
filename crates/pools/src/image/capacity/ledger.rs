//! What is promised, what is about to be, and how much room that leaves.
//!
//! Where a number cannot be exact it errs towards less room: files are gone before their space
//! counts as free, and a new promise counts before its reservation is given back.

use orlop_sys::file::Space;

use super::formula::{Floor, Headroom};
use super::usage_scan::UsageScan;
use crate::image::catalogue::object_index::Account;

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

    /// A file was looked at again.
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

    /// Of what is reserved, this much is taken by now, or given up.
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

    pub(super) fn headroom_of(&self, space: &Space, owned: u128, largest_file: u64) -> Headroom {
        Headroom {
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
