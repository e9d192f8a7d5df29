//! Making, growing and removing volumes and snapshots.
//!
//! A thin volume without a source is there with its record after one command of LVM, or not at all. A snapshot, or a volume
//! that is made from one or from another volume, is a thin snapshot: a draft from its point-in-time copy on, with no name
//! that anything would find, until one command makes it whole. A thick volume is a draft until it is zeroed (`thick.rs`).
//! Abandoned drafts are removed when they are dropped, or when the pool is opened next.

mod delete;
mod group_snapshot_draft;
mod reclaim;
mod snapshot_draft;
mod thick;
mod volume_draft;

use std::sync::Arc;

use orlop_model::{
    Draft, Error, GroupSnapshotId, GroupSnapshotRecord, NewGroupSnapshot, NewSnapshot, NewVolume,
    PoolCapacity, PoolSpace, Provisioner, Provisioning, Result, SnapshotId, SnapshotRecord,
    VolumeId, VolumeParameters, VolumeRecord,
};

use super::capacity::{Demand, LvmCapacity};
use super::catalogue::LvmCatalogue;
use super::commands::Lvm;
use super::devices::LinearDevices;
use super::health::missing_disks;
use group_snapshot_draft::LvmGroupSnapshotDraft;
use snapshot_draft::LvmSnapshotDraft;
use volume_draft::LvmVolumeDraft;

/// Each part owns its state; what is here has none.
#[derive(Debug, Clone)]
pub(super) struct LvmProvisioner {
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
    capacity: Arc<LvmCapacity>,
    devices: Arc<LinearDevices>,
    thin_pool: String,
}

impl LvmProvisioner {
    pub(super) fn new(
        lvm: &Arc<Lvm>,
        catalogue: &Arc<LvmCatalogue>,
        capacity: &Arc<LvmCapacity>,
        devices: &Arc<LinearDevices>,
        thin_pool: &str,
    ) -> Self {
        Self {
            lvm: Arc::clone(lvm),
            catalogue: Arc::clone(catalogue),
            capacity: Arc::clone(capacity),
            devices: Arc::clone(devices),
            thin_pool: thin_pool.to_owned(),
        }
    }

    /// A crash between both leaves a logical volume that is larger than its record says; the repeated call finds that.
    fn grow(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        let mut record = self.catalogue.volume_objects().require(id)?;
        if bytes <= record.capacity_bytes {
            return Ok(record);
        }
        let demand = match record.parameters.provisioning {
            Provisioning::Thin => Demand::Thin(bytes - record.capacity_bytes),
            Provisioning::Thick => {
                self.thick_demand(&record.parameters.lvm, record.capacity_bytes, bytes)?
            }
        };
        let _reservation = self.capacity.try_reserve(demand)?;
        self.ensure_lv_holds(&id.to_string(), bytes, || format!("grow {}", record.label()))?;
        match record.parameters.provisioning {
            Provisioning::Thin => {}
            Provisioning::Thick => self.zero(&record, record.capacity_bytes..bytes)?,
        }
        record.capacity_bytes = bytes;
        self.catalogue.volume_objects().replace(&record)?;
        Ok(record)
    }

    /// Are all disks of the volume group there? LVM changes nothing otherwise.
    fn check_complete(&self, doing: impl Fn() -> String) -> Result<()> {
        match missing_disks(&self.lvm, &*self.lvm.report()?) {
            None => Ok(()),
            Some(problem) => Err(Error::unreachable(doing(), problem.message)),
        }
    }

    /// LVM grows in extents, and refuses what would change nothing.
    fn ensure_lv_holds(&self, name: &str, bytes: u64, growing: impl Fn() -> String) -> Result<()> {
        let report = self.lvm.report()?;
        let Some(lv) = report.lv(name) else {
            let lv = self.lvm.group().lv(&name);
            return Err(Error::failed(growing(), format!("its logical volume {lv} is gone")));
        };
        if lv.size >= bytes {
            return Ok(());
        }
        let size = format!("{bytes}b");
        self.lvm.change(growing, "lvextend", &["--size", &size, &self.lvm.group().lv(&name)])
    }
}

impl Provisioner for LvmProvisioner {
    fn capacity(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        self.capacity.available(provisioning)
    }

    fn capacity_for(&self, parameters: &VolumeParameters) -> Result<PoolCapacity> {
        match parameters.provisioning {
            Provisioning::Thin => self.capacity.available(Provisioning::Thin),
            Provisioning::Thick => self.capacity.available_for(&parameters.lvm),
        }
    }

    fn space(&self) -> Result<PoolSpace> {
        self.capacity.space()
    }

    fn used_bytes(&self, id: &VolumeId) -> Result<u64> {
        self.measure(id)
    }

    fn used_bytes_of(&self, ids: &[VolumeId]) -> Vec<Result<u64>> {
        match self.lvm.recent_report() {
            Ok(report) => ids.iter().map(|id| self.used_in(&report, id)).collect(),
            Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn check_takes(&self, id: &VolumeId, bytes: u64) -> Result<()> {
        self.capacity.check_takes(id, bytes)
    }

    fn begin_volume(&self, new: &NewVolume) -> Result<Box<dyn Draft<VolumeRecord>>> {
        Ok(Box::new(LvmVolumeDraft::begin(self, new)?))
    }

    fn begin_snapshot(&self, new: &NewSnapshot) -> Result<Box<dyn Draft<SnapshotRecord>>> {
        Ok(Box::new(LvmSnapshotDraft::begin(self, new, None)?))
    }

    fn begin_group_snapshot(
        &self,
        new: &NewGroupSnapshot,
    ) -> Result<Box<dyn Draft<GroupSnapshotRecord>>> {
        Ok(Box::new(LvmGroupSnapshotDraft::begin(self, new)?))
    }

    /// LVM suspends the source of a thin snapshot.
    fn has_atomic_copies(&self) -> bool {
        true
    }

    /// All members are suspended before the first is copied.
    fn has_atomic_groups(&self) -> bool {
        true
    }

    fn ensure_capacity(&self, id: &VolumeId, bytes: u64) -> Result<VolumeRecord> {
        self.grow(id, bytes)
    }

    fn ensure_reclaimed(&self, id: &VolumeId) -> Result<()> {
        self.reclaim(id)
    }

    fn ensure_no_volume(&self, id: &VolumeId) -> Result<()> {
        self.delete_volume(id)
    }

    fn ensure_no_snapshot(&self, id: &SnapshotId) -> Result<()> {
        self.delete_snapshot(id)
    }

    fn ensure_no_group_snapshot(&self, id: &GroupSnapshotId) -> Result<()> {
        self.delete_group_snapshot(id)
    }
}

#[cfg(test)]
mod tests;
