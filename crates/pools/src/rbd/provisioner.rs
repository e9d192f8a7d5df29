//! Making, growing and removing volumes and snapshots.
//!
//! What a change must survive is said where it is made: `volume_draft.rs`, `snapshot_draft.rs` and
//! `group_snapshot_draft.rs` for creation, `delete.rs` and `garbage.rs` for the end.

mod group_snapshot_draft;
mod snapshot_draft;
mod volume_draft;

use std::sync::Arc;

use orlop_model::{
    Draft, GroupSnapshotId, GroupSnapshotRecord, NewGroupSnapshot, NewSnapshot, NewVolume,
    PoolCapacity, PoolInfo, PoolSpace, Provisioner, Provisioning, Result, SnapshotId,
    SnapshotRecord, VolumeId, VolumeRecord,
};
use orlop_sys::ceph::{Access, DiffExtent, Written, can_clone_by_number};

use super::capacity::RbdCapacity;
use super::catalogue::RbdCatalogue;
use super::delete::Deletion;
use super::flatten::Flattening;
use super::image_lock::open_to_change;
use super::images::Images;
use super::intent::Intents;
use super::pool_header;
use super::session::{Session, cannot};
use super::size_lock::SizeLock;
use super::uncommitted_snapshot::UncommittedSnapshot;
use group_snapshot_draft::RbdGroupSnapshotDraft;
use snapshot_draft::RbdSnapshotDraft;
use volume_draft::RbdVolumeDraft;

/// Zeroes in runs of this length are given back.
const SPARSE_RUN: usize = 4096;

/// Can a group snapshot be restored with the librbd of this machine?
pub(super) fn can_restore_groups() -> bool {
    can_clone_by_number().unwrap_or_else(|error| {
        tracing::warn!(
            %error,
            "cannot tell whether librbd restores group snapshots; none are offered"
        );
        false
    })
}

/// The components that a draft works with; each owns its state.
#[derive(Debug, Clone)]
pub(super) struct RbdProvisioner {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
    images: Arc<Images>,
    intents: Arc<Intents>,
    catalogue: Arc<RbdCatalogue>,
    capacity: Arc<RbdCapacity>,
    flattening: Arc<Flattening>,
    deletion: Arc<Deletion>,
    takes_group_snapshots: bool,
}

impl RbdProvisioner {
    #[expect(clippy::too_many_arguments, reason = "each is a component, made once, in one place")]
    pub(super) fn new(
        session: &Arc<Session>,
        info: &Arc<PoolInfo>,
        images: &Arc<Images>,
        intents: &Arc<Intents>,
        catalogue: &Arc<RbdCatalogue>,
        capacity: &Arc<RbdCapacity>,
        flattening: &Arc<Flattening>,
        deletion: &Arc<Deletion>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            info: Arc::clone(info),
            images: Arc::clone(images),
            intents: Arc::clone(intents),
            catalogue: Arc::clone(catalogue),
            capacity: Arc::clone(capacity),
            flattening: Arc::clone(flattening),
            deletion: Arc::clone(deletion),
            takes_group_snapshots: false,
        }
    }

    pub(super) fn with_group_snapshots(self, takes_group_snapshots: bool) -> Self {
        Self { takes_group_snapshots, ..self }
    }

    /// Under another pool's id, nothing that is made is found again; and the first image that is made
    /// after the directory was lost would hide that.
    fn check_may_make(&self) -> Result<()> {
        pool_header::check_unchanged(&self.session, &self.info)?;
        self.images.check_directory()
    }

    fn take_snapshot(&self, image_id: &str, purpose: &str) -> Result<UncommittedSnapshot> {
        UncommittedSnapshot::take(&self.session, &self.intents, image_id, purpose)
    }
}

impl Provisioner for RbdProvisioner {
    fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        self.capacity.largest(provisioning)
    }

    fn space(&self) -> Result<PoolSpace> {
        Ok(PoolSpace { available: self.capacity.available()?, ..PoolSpace::default() })
    }

    /// Without what it shares with its source, and without what only its snapshots hold.
    fn used_bytes(&self, id: &VolumeId) -> Result<u64> {
        let image = self.images.open(id, Access::ReadOnly)?;
        let looking = || format!("inspect volume {id}");
        let all = (0, image.size().map_err(cannot(looking))?);
        let mut bytes = 0;
        let add = |extent: DiffExtent| {
            bytes += if extent.holds_data { extent.length } else { 0 };
            true
        };
        image.visit_written(Written::Here, all, add).map_err(cannot(looking))?;
        Ok(bytes)
    }

    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        self.check_may_make()?;
        Ok(Box::new(RbdVolumeDraft::begin(self, new)?))
    }

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>> {
        self.check_may_make()?;
        Ok(Box::new(RbdSnapshotDraft::begin(self, new)?))
    }

    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>> {
        self.check_may_make()?;
        Ok(Box::new(RbdGroupSnapshotDraft::begin(self, new)?))
    }

    fn has_atomic_copies(&self) -> bool {
        true
    }

    fn has_atomic_groups(&self) -> bool {
        true
    }

    /// The image first, its record last. `size_lock.rs` keeps two clients from it at once.
    fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        let known = self.images.require(id)?;
        let growth = bytes.saturating_sub(known.record.capacity_bytes);
        if growth == 0 {
            return Ok(known.record);
        }
        self.capacity.check_fits(growth)?;
        let lock = SizeLock::acquire(&self.session, id, &known.image_id)?;
        // A crash after this leaves more than the record says, which the next call takes over.
        lock.ensure_size(&known.record, bytes)?;
        self.images.update(id, &mut |record| {
            record.capacity_bytes = record.capacity_bytes.max(bytes);
            Ok(())
        })
    }

    /// The object stores do it, each object in one step: writers need not be held.
    fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()> {
        let known = self.images.require(id)?;
        let reclaiming = || format!("reclaim space of volume {id}");
        self.session.ask(reclaiming, |io| open_to_change(io, &known.image_id)?.sparsify(SPARSE_RUN))
    }

    fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        self.deletion.ensure_no_volume(id)
    }

    fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        self.deletion.ensure_no_snapshot(id)
    }

    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        self.deletion.ensure_no_group_snapshot(id)
    }
}
