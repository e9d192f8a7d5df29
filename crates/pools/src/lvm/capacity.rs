//! What can still be promised, and when nothing more is.
//!
//! A pool has four limits, each of which ends it in its own way: data of the thin pool (writes stall), its metadata (it
//! becomes read-only and needs a repair), the extents of the volume group (for thick volumes), and the metadata area that
//! describes the volume group (no change is possible). Nothing new is made near any of them.

use std::sync::{Arc, Mutex};

use orlop_model::{
    ALLOCATION_UNIT, Bytes, Error, PoolCapacity, PoolSpace, Provisioning, Result, VolumeId,
    VolumeRecord,
};

use super::catalogue::LvmCatalogue;
use super::commands::Lvm;
use super::report::{GroupReport, Lv, LvKind};
use crate::image::Floor;
use crate::poison::lock;

/// Of the thin pool's metadata. Each snapshot shares its origin's, and then needs its own piece by piece as either is
/// written to: that can take more than all that exists now.
const MOST_METADATA_PERCENT: u64 = 80;
/// Of the metadata area: what a volume group needs at the end, to be changed so that it needs less.
const METADATA_AREA_FLOOR: u64 = 32 << 10;
/// LVM keeps the text before the last one, so it uses half, less a header.
const METADATA_AREA_SHARE: u64 = 2;

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) floor: Floor,
    pub(super) overcommit_percent: u32,
}

#[derive(Debug)]
pub(super) struct LvmCapacity {
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
    pool: String,
    thin_pool: String,
    limits: Limits,
    /// By calls that are under way.
    reserved: Mutex<u128>,
}

/// What something new needs of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// A thin volume, or growth of one: so much is promised.
    Thin(u64),
    /// Shares all its blocks. Each may have to be copied when it is written, and no space is promised for that.
    Snapshot,
}

impl LvmCapacity {
    pub(super) fn new(
        lvm: &Arc<Lvm>,
        catalogue: &Arc<LvmCatalogue>,
        pool: &str,
        thin_pool: &str,
        limits: Limits,
    ) -> Arc<Self> {
        Arc::new(Self {
            lvm: Arc::clone(lvm),
            catalogue: Arc::clone(catalogue),
            pool: pool.to_owned(),
            thin_pool: thin_pool.to_owned(),
            limits,
            reserved: Mutex::new(0),
        })
    }

    /// Until the reservation is dropped nothing else is promised the same space.
    pub(super) fn try_reserve(self: &Arc<Self>, demand: Demand) -> Result<Reservation> {
        let report = self.lvm.report()?;
        let mut reserved = lock(&self.reserved);
        let room = self.room(&report, *reserved)?;
        room.check(&self.pool, demand)?;
        let bytes = match demand {
            Demand::Thin(bytes) => bytes,
            Demand::Snapshot => 0,
        };
        *reserved += u128::from(bytes);
        Ok(Reservation { capacity: Arc::clone(self), bytes })
    }

    pub(super) fn available(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        let report = self.lvm.report()?;
        let room = self.room(&report, *lock(&self.reserved))?;
        let available_bytes = match (room.shortage(&self.pool), provisioning) {
            (Some(_), _) => 0,
            (None, Provisioning::Thin) => room.promisable(),
            (None, Provisioning::Thick) => room.extents_free,
        };
        let largest_volume = available_bytes / ALLOCATION_UNIT * ALLOCATION_UNIT;
        Ok(PoolCapacity { available_bytes, largest_volume })
    }

    pub(super) fn space(&self) -> Result<PoolSpace> {
        let reserved = *lock(&self.reserved);
        let report = self.lvm.recent_report()?;
        let room = self.room(&report, reserved)?;
        let saturated = |bytes| u64::try_from(bytes).unwrap_or(u64::MAX);
        let available = match room.shortage(&self.pool) {
            Some(_) => 0,
            None => room.promisable(),
        };
        Ok(PoolSpace {
            size: Some(room.data),
            free: Some(room.data_free),
            stored: Some(room.data - room.data_free),
            shared: None,
            floor: Some(room.floor),
            promised: Some(saturated(room.promised - reserved)),
            reserved: Some(saturated(reserved)),
            overcommit_percent: Some(room.overcommit_percent),
            available,
        })
    }

    /// `Exhausted` if the thin pool cannot take so many bytes more.
    pub(super) fn check_takes(&self, id: &VolumeId, bytes: u64) -> Result<()> {
        let record = self.catalogue.volume_objects().require(id)?;
        let report = self.lvm.report()?;
        let room = self.room(&report, 0)?;
        if room.data_free >= bytes || record.parameters.provisioning == Provisioning::Thick {
            return Ok(());
        }
        Err(Error::exhausted(format!(
            "cannot write to {}: that may take {} more of the thin pool of pool {}, which has {} free; delete volumes \
             or snapshots, run fstrim on mounted volumes in which files were deleted, or enlarge it with `lvextend`",
            record.label(),
            Bytes(bytes),
            self.pool,
            Bytes(room.data_free)
        )))
    }

    /// Why nothing new is made now, if that is so.
    pub(super) fn shortage(&self) -> Result<Option<String>> {
        let report = self.lvm.recent_report()?;
        Ok(self.room(&report, 0)?.shortage(&self.pool))
    }

    fn room(&self, report: &GroupReport, reserved: u128) -> Result<Room> {
        let reading = || format!("read the space of pool {}", self.pool);
        let thin_pool = report.lv(&self.thin_pool).ok_or_else(|| {
            Error::failed(reading(), format!("its thin pool {} is gone", self.thin_pool))
        })?;
        let usage = thin_pool.data_used.zip(thin_pool.metadata_used.zip(thin_pool.metadata_size));
        let Some((data_used, (metadata_used, metadata_size))) = usage else {
            let lv = self.lvm.group().lv(&self.thin_pool);
            let reason = format!(
                "its thin pool is not active; `lvchange --activate y {lv}` activates it, and says why if it cannot"
            );
            return Err(Error::unreachable(reading(), reason));
        };
        Ok(Room {
            data: thin_pool.size,
            data_free: thin_pool.size - data_used.of(thin_pool.size).min(thin_pool.size),
            metadata: metadata_size,
            metadata_used: metadata_used.of(metadata_size),
            floor: self.limits.floor.of(thin_pool.size),
            overcommit_percent: self.limits.overcommit_percent,
            promised: self.promised(report) + reserved,
            extents_free: report.group.free,
            area_free: report.group.metadata_area_free,
            area: report.group.metadata_area / METADATA_AREA_SHARE,
        })
    }

    /// To our volumes what their records say, to others in the thin pool their size.
    fn promised(&self, report: &GroupReport) -> u128 {
        let volumes = self.catalogue.volume_objects();
        let to_ours: u128 = volumes.records().map(|volume| promise(&volume)).sum();
        let is_foreign = |lv: &&Lv| {
            lv.kind() == LvKind::Thin
                && lv.thin_pool == self.thin_pool
                && !self.catalogue.is_own(lv)
        };
        let foreign = report.volumes.iter().filter(is_foreign);
        to_ours + foreign.map(|lv| u128::from(lv.size)).sum::<u128>()
    }
}

fn promise(volume: &VolumeRecord) -> u128 {
    match volume.parameters.provisioning {
        Provisioning::Thin => u128::from(volume.capacity_bytes),
        // In extents of its own.
        Provisioning::Thick => 0,
    }
}

/// The numbers at one time, in bytes.
#[derive(Debug, Clone, Copy)]
struct Room {
    data: u64,
    data_free: u64,
    metadata: u64,
    metadata_used: u64,
    floor: u64,
    overcommit_percent: u32,
    promised: u128,
    extents_free: u64,
    area: u64,
    area_free: u64,
}

impl Room {
    fn promisable(&self) -> u64 {
        let usable = u128::from(self.data.saturating_sub(self.floor));
        let with_overcommit = usable * u128::from(self.overcommit_percent) / 100;
        u64::try_from(with_overcommit.saturating_sub(self.promised)).unwrap_or(u64::MAX)
    }

    fn check(&self, pool: &str, demand: Demand) -> Result<()> {
        if let Some(why) = self.shortage(pool) {
            return Err(Error::exhausted(why));
        }
        match demand {
            Demand::Thin(bytes) if bytes > self.promisable() => Err(Error::exhausted(format!(
                "cannot reserve {} in pool {pool}: {} of its {} can be promised yet, less the floor of {}; delete \
                 volumes, enlarge the thin pool, or raise the pool's overcommit",
                Bytes(bytes),
                Bytes(self.promisable()),
                Bytes(self.data),
                Bytes(self.floor)
            ))),
            Demand::Thin(_) | Demand::Snapshot => Ok(()),
        }
    }

    fn shortage(&self, pool: &str) -> Option<String> {
        if self.data_free <= self.floor {
            return Some(format!(
                "pool {pool} is below its floor: {} free of {}, floor {}; delete volumes or snapshots, run fstrim on \
                 mounted volumes in which files were deleted, or enlarge its thin pool with `lvextend`",
                Bytes(self.data_free),
                Bytes(self.data),
                Bytes(self.floor)
            ));
        }
        if u128::from(self.metadata_used) * 100
            > u128::from(self.metadata) * u128::from(MOST_METADATA_PERCENT)
        {
            return Some(format!(
                "the metadata of the thin pool of pool {pool} is nearly full: {} of {} are used; delete snapshots, or \
                 enlarge it with `lvextend --poolmetadatasize`: a thin pool without metadata has to be repaired",
                Bytes(self.metadata_used),
                Bytes(self.metadata)
            ));
        }
        if self.area_free < METADATA_AREA_FLOOR {
            return Some(format!(
                "the volume group of pool {pool} can hardly describe more volumes: {} are free of the {} that its \
                 smallest metadata area has for that; delete volumes or snapshots, or use physical volumes with a \
                 larger one (`pvcreate --metadatasize`)",
                Bytes(self.area_free),
                Bytes(self.area)
            ));
        }
        None
    }
}

/// Space that a draft holds until it is committed or dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    capacity: Arc<LvmCapacity>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = lock(&self.capacity.reserved);
        *reserved = reserved.saturating_sub(u128::from(self.bytes));
    }
}

#[cfg(test)]
mod tests;
