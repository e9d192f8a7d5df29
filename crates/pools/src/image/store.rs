//! The state that the pool shares with its drafts.

use std::sync::Mutex;

use orlop_model::{
    GroupSnapshotRecord, PoolId, PoolInfo, Result, SnapshotRecord, VolumeGroupRecord, VolumeRecord,
};
use orlop_sys::file::{BackingKind, RenameOutcome};

use super::attach::Attachments;
use super::ballast::Ballast;
use super::layout::Layout;
use super::ledger::{Ledger, Reservation};
use super::managed::Managed;
use super::marker::Marker;
use super::moment::ThickDrafts;
use super::register::Register;
use super::room::Floor;
use super::shelf::{Booked, Kept, Shelf};
use super::staged::Staged;
use super::survey::Surveyor;
use super::templates::Templates;
use crate::poison::lock;
use crate::shortage::Shortage;

pub(super) struct Store {
    pub(super) info: PoolInfo,
    pub(super) layout: Layout,
    pub(super) marker: Marker,
    pub(super) managed: Option<Managed>,
    /// `st_dev` of the pool's directory: another one there means that it was unmounted.
    pub(super) filesystem: u64,
    pub(super) backing: BackingKind,
    /// As [`orlop_sys::filesystem::keeps_order`] says (decision 0028).
    pub(super) keeps_order: bool,
    pub(super) shares_extents: bool,
    /// The pool is a subvolume of btrfs, which can be snapshotted as a whole.
    pub(super) holds_moments: bool,
    pub(super) thick_drafts: ThickDrafts,
    pub(super) volumes: Shelf<VolumeRecord>,
    pub(super) snapshots: Shelf<SnapshotRecord>,
    pub(super) group_snapshots: Register<GroupSnapshotRecord>,
    pub(super) volume_groups: Register<VolumeGroupRecord>,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) surveyor: Surveyor,
    pub(super) floor: Floor,
    pub(super) shortage: Shortage,
    pub(super) attachments: Attachments,
    pub(super) ballast: Ballast,
    pub(super) templates: Templates,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("name", &self.info.name)
            .field("root", &self.layout.root())
            .finish_non_exhaustive()
    }
}

impl Store {
    pub(super) fn id(&self) -> &PoolId {
        &self.info.id
    }

    pub(super) fn name(&self) -> &str {
        &self.info.name
    }

    /// Puts what is staged into its place, or finds there what an earlier attempt made and could
    /// not report. What is there may also be something else: a volume that came back with a pool
    /// that had been away.
    pub(super) fn place<R: Kept>(
        &self,
        shelf: &Shelf<R>,
        staged: &Staged,
        record: &R,
        reservation: &mut Reservation,
    ) -> Result<R> {
        let allocated = staged.allocated()?;
        // A volume that is no copy may share with a template, and with all others made from it.
        if record.is_copy() || reservation.shared() > 0 {
            staged.note_shared(reservation.shared());
        }
        match staged.place(record, &shelf.home(record.id()))? {
            RenameOutcome::Renamed => {
                let charge = record.charge(allocated);
                let mut ledger = lock(&self.ledger);
                ledger.promise(charge);
                let own = ledger.note_shelved(reservation);
                shelf.put(record.clone(), Booked { charge, own }, reservation.shared());
                Ok(record.clone())
            }
            RenameOutcome::TargetExists => {
                self.adopt(shelf, record.id())?;
                let found = shelf.require(record.id())?;
                found.check_answers(record)?;
                Ok(found)
            }
        }
    }

    /// A rename whose fsync failed was reported as a failure, but may well have happened. This
    /// takes in what it left.
    pub(super) fn adopt<R: Kept>(&self, shelf: &Shelf<R>, id: &R::Id) -> Result<()> {
        let mut ledger = lock(&self.ledger);
        if let Some(Booked { charge, own }) = shelf.adopt(id)? {
            ledger.promise(charge);
            ledger.note_stored(own);
        }
        Ok(())
    }
}
