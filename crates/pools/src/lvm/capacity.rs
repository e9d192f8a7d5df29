//! What can still be promised, and when nothing more is.
//!
//! A pool has four limits, each of which ends it in its own way: data of the thin pool (writes stall or fail), its metadata
//! (it becomes read-only and needs a repair), the extents of the volume group (for thick volumes), and the metadata area
//! that describes the volume group (no change is possible). Nothing new is made near any of them (`room.rs`).
//!
//! How full the thin pool is says the kernel (`thin_status.rs`), which costs no command of LVM; how many extents are free,
//! a report of LVM that may be a minute old.

mod reservation;
mod room;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orlop_model::{
    ALLOCATION_UNIT, Bytes, Error, LvmLayout, PoolCapacity, PoolSpace, Provisioning, Result,
    VolumeId, VolumeRecord,
};

use super::catalogue::LvmCatalogue;
use super::commands::Lvm;
use super::extension::{Extension, Spread, ThinPoolExtender};
use super::layout::own_tag;
use super::report::{GroupReport, Lv, LvKind};
use super::thick_layout;
use super::thin_status::{Mode, ThinPoolDevice, ThinStatus, WhenFull};
use crate::image::Floor;
use crate::poison::lock;
use crate::shortage::{Change, Shortage as ShortageLog};
use reservation::Reserved;
pub(super) use reservation::{Demand, Reservation};
use room::{GroupRoom, Room, Shortage};

/// LVM keeps the text before the last one, so it uses half, less a header.
const METADATA_AREA_SHARE: u64 = 2;
/// What a volume or snapshot takes of the metadata area, more likely less: for numbers that are older than it.
const AREA_OF_VOLUME: u64 = 2 << 10;
/// How old numbers may be, from the kernel and from LVM. A refusal is based on new ones.
const STATUS_AGE: Duration = Duration::from_secs(2);
const GROUP_AGE: Duration = Duration::from_secs(60);
/// The kernel answers at once, unless the thin pool's disk hangs.
const STATUS_LIMIT: Duration = Duration::from_secs(20);
/// A step that does not suffice is followed by another.
const MOST_STEPS: usize = 8;

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) floor: Floor,
    pub(super) overcommit_percent: u32,
    /// `None`: the thin pool stays as large as it is.
    pub(super) extension: Option<Extension>,
}

#[derive(Debug)]
pub(super) struct LvmCapacity {
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
    pool: String,
    thin_pool: String,
    limits: Limits,
    device: ThinPoolDevice,
    extender: Option<ThinPoolExtender>,
    /// By calls that are under way.
    reserved: Mutex<Reserved>,
    status: Mutex<Option<(Instant, ThinStatus)>>,
    group: Mutex<Option<(Instant, GroupRoom)>>,
    shortage_log: ShortageLog,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Recent,
    New,
}

impl LvmCapacity {
    pub(super) fn new(
        lvm: &Arc<Lvm>,
        catalogue: &Arc<LvmCatalogue>,
        pool: &str,
        thin_pool: &str,
        limits: Limits,
    ) -> Arc<Self> {
        let extender = |policy| ThinPoolExtender::new(lvm, pool, thin_pool, policy);
        Arc::new(Self {
            lvm: Arc::clone(lvm),
            catalogue: Arc::clone(catalogue),
            pool: pool.to_owned(),
            thin_pool: thin_pool.to_owned(),
            limits,
            device: ThinPoolDevice::new(lvm.group(), thin_pool, STATUS_LIMIT),
            extender: limits.extension.map(extender),
            reserved: Mutex::default(),
            status: Mutex::default(),
            group: Mutex::default(),
            shortage_log: ShortageLog::default(),
        })
    }

    /// Until the reservation is dropped nothing else is promised the same space.
    pub(super) fn try_reserve(self: &Arc<Self>, demand: Demand) -> Result<Reservation> {
        if let Ok(reservation) = self.try_reserve_now(demand, Freshness::Recent)? {
            return Ok(reservation);
        }
        for _ in 0..MOST_STEPS {
            let Refusal { error, growth } = match self.try_reserve_now(demand, Freshness::New)? {
                Ok(reservation) => return Ok(reservation),
                Err(refusal) => refusal,
            };
            match growth {
                Some(least) if self.try_extend(least)? => {}
                Some(_) | None => return Err(error),
            }
        }
        self.try_reserve_now(demand, Freshness::New)?.map_err(|refusal| refusal.error)
    }

    fn try_reserve_now(
        self: &Arc<Self>,
        demand: Demand,
        group: Freshness,
    ) -> Result<std::result::Result<Reservation, Refusal>> {
        let (status, group) = (self.status(Freshness::New)?, self.group(group)?);
        let mut reserved = lock(&self.reserved);
        let room = self.room(status, group, &reserved);
        if let Err(error) = room.check(&self.pool, demand) {
            return Ok(Err(Refusal { error, growth: growth_for(&room, demand) }));
        }
        reserved.add(demand);
        drop(reserved);
        self.note_area_taken();
        Ok(Ok(Reservation { capacity: Arc::clone(self), demand }))
    }

    /// `false`: there is nothing to enlarge, or no way to.
    fn try_extend(&self, least: u64) -> Result<bool> {
        let Some(extender) = &self.extender else { return Ok(false) };
        let numbers = || {
            let group = self.group(Freshness::New)?;
            Ok((self.status(Freshness::New)?, group.extents()))
        };
        let extended = extender.try_step(least, numbers);
        *lock(&self.group) = None;
        extended
    }

    pub(super) fn available(&self, provisioning: Provisioning) -> Result<PoolCapacity> {
        match provisioning {
            Provisioning::Thin => {
                let room = self.recent_room()?;
                Ok(pool_capacity(room.available()))
            }
            Provisioning::Thick => self.available_for(&LvmLayout::default()),
        }
    }

    /// For thick volumes that lie like this, if the free extents are spread over the disks.
    pub(super) fn available_for(&self, layout: &LvmLayout) -> Result<PoolCapacity> {
        let room = self.recent_room()?;
        let has_disks = usize::try_from(layout.disks()).is_ok_and(|it| it <= room.group.disks);
        Ok(pool_capacity(match room.area_shortage() {
            None if has_disks && room.group.is_complete => {
                thick_layout::bytes_in(layout, room.group.free, room.group.extent)
            }
            None | Some(_) => 0,
        }))
    }

    pub(super) fn space(&self) -> Result<PoolSpace> {
        let room = self.recent_room()?;
        let reserved = lock(&self.reserved).thin;
        Ok(PoolSpace {
            size: Some(room.thin.data.size),
            free: Some(room.thin.data.free()),
            stored: Some(room.thin.data.used),
            // The kernel counts chunks, and not how often each is used.
            shared: None,
            floor: Some(room.floor),
            promised: Some(saturated(room.promised.saturating_sub(reserved))),
            reserved: Some(saturated(reserved)),
            overcommit_percent: Some(self.limits.overcommit_percent),
            metadata_size: Some(room.thin.metadata.size),
            metadata_used: Some(room.thin.metadata.used),
            available: room.available(),
        })
    }

    /// `Exhausted` if the thin pool cannot take so many bytes more.
    pub(super) fn check_takes(&self, id: &VolumeId, bytes: u64) -> Result<()> {
        let record = self.catalogue.volume_objects().require(id)?;
        match record.parameters.provisioning {
            Provisioning::Thin => {}
            Provisioning::Thick => return Ok(()),
        }
        let data = self.status(Freshness::New)?.data;
        if data.free() >= bytes {
            return Ok(());
        }
        Err(Error::exhausted(format!(
            "cannot write to {}: that may take {} more of the thin pool of pool {}, which has {} free; delete \
             volumes or snapshots, run fstrim on mounted volumes in which files were deleted, or enlarge it with \
             `lvextend`",
            record.label(),
            Bytes(bytes),
            self.pool,
            Bytes(data.free())
        )))
    }

    /// Why nothing new is made now, if that is so.
    pub(super) fn shortage(&self) -> Result<Option<String>> {
        let room = self.recent_room()?;
        self.note_shortage(&room);
        Ok(room.thin_shortage().map(|shortage| room.text(&self.pool, shortage)))
    }

    /// Logs what has changed, and enlarges the thin pool if that is due. `true`: it should soon be called again.
    pub(super) fn watch(&self) -> Result<bool> {
        let status = self.status(Freshness::New)?;
        if status.mode == Mode::Writable || status.mode == Mode::OutOfData {
            for _ in 0..MOST_STEPS {
                if !self.is_extension_due()? || !self.try_extend(0)? {
                    break;
                }
            }
        }
        let room = self.recent_room()?;
        self.note_shortage(&room);
        let near = |extender: &ThinPoolExtender| extender.policy().is_near(&room.thin);
        Ok(self.extender.as_ref().is_some_and(near))
    }

    /// By the kernel's numbers alone, so that LVM is not asked as long as there is enough.
    fn is_extension_due(&self) -> Result<bool> {
        let Some(extender) = &self.extender else { return Ok(false) };
        let at_percent = extender.policy().at_percent;
        let status = self.status(Freshness::New)?;
        Ok(status.data.is_above(at_percent) || status.metadata.is_above(at_percent))
    }

    /// An operator may have reasons, and can change it at any time.
    pub(super) fn warn_of_when_full(&self) {
        let Ok(ThinStatus { when_full: found, .. }) = self.status(Freshness::Recent) else {
            return;
        };
        let wanted = WhenFull::wanted(self.limits.extension.as_ref());
        if found == wanted {
            return;
        }
        let (pool, lv) = (self.pool.as_str(), self.lvm.group().lv(&self.thin_pool));
        match found {
            WhenFull::Queue => tracing::warn!(
                pool,
                "writes will hang for a minute once the thin pool is full, and then fail; as nothing enlarges it, \
                 `lvchange --errorwhenfull {} {lv}` lets them fail at once",
                wanted.option()
            ),
            WhenFull::Error => tracing::warn!(
                pool,
                "writes will fail at once when the thin pool is full, even if it can be enlarged; `lvchange \
                 --errorwhenfull {} {lv}` lets them wait for that",
                wanted.option()
            ),
        }
    }

    fn note_shortage(&self, room: &Room) {
        let shortage = room.thin_shortage();
        // A tenth of the floor more, so that a use that goes up and down around it is logged once.
        let has_plenty = shortage.is_none()
            && room.thin.data.free() > room.floor.saturating_add(room.floor / 10)
            && !room.thin.metadata.is_above(75);
        let pool = self.pool.as_str();
        match (self.shortage_log.note(shortage.is_some(), has_plenty), shortage) {
            (Some(Change::Begun), Some(shortage)) => {
                let why = room.text(pool, shortage);
                tracing::warn!(pool, why, "nothing is made or grown in the thin pool");
            }
            (Some(Change::Over), _) => tracing::info!(
                pool,
                free = %Bytes(room.thin.data.free()),
                metadata_free = %Bytes(room.thin.metadata.free()),
                "the thin pool has space again"
            ),
            (Some(Change::Begun), None) | (None, _) => {}
        }
    }

    fn recent_room(&self) -> Result<Room> {
        let (status, group) = (self.status(Freshness::Recent)?, self.group(Freshness::Recent)?);
        Ok(self.room(status, group, &lock(&self.reserved)))
    }

    fn room(&self, thin: ThinStatus, group: GroupRoom, reserved: &Reserved) -> Room {
        let group = GroupRoom { free: group.free.saturating_sub(reserved.thick), ..group };
        let growth = |policy: Extension| policy.room(&thin, group.extents());
        let extended = thin.data.size.saturating_add(self.limits.extension.map_or(0, growth));
        Room {
            thin,
            floor: self.limits.floor.of(thin.data.size),
            overcommit_percent: self.limits.overcommit_percent,
            promised: self.promised() + group.foreign + reserved.thin,
            extended: (extended, self.limits.floor.of(extended)),
            group,
        }
    }

    fn status(&self, freshness: Freshness) -> Result<ThinStatus> {
        if let Some((since, status)) = *lock(&self.status)
            && freshness == Freshness::Recent
            && since.elapsed() <= STATUS_AGE
        {
            return Ok(status);
        }
        let since = Instant::now();
        let status = self.device.status()?.ok_or_else(|| {
            let lv = self.lvm.group().lv(&self.thin_pool);
            let reason = format!(
                "its thin pool is not active; `lvchange --activate y {lv}` activates it, and says why if it cannot"
            );
            Error::unreachable(format!("read the space of pool {}", self.pool), reason)
        })?;
        *lock(&self.status) = Some((since, status));
        Ok(status)
    }

    fn group(&self, freshness: Freshness) -> Result<GroupRoom> {
        if let Some((since, group)) = *lock(&self.group)
            && freshness == Freshness::Recent
            && since.elapsed() <= GROUP_AGE
        {
            return Ok(group);
        }
        let since = Instant::now();
        let report = self.lvm.report()?;
        let data = report.lv(&self.thin_pool).map_or(0, |lv| lv.size);
        let group = GroupRoom {
            spread: Spread::of(self.lvm.group(), &self.thin_pool, data)?,
            extent: report.group.extent,
            free: report.group.free,
            area: report.group.metadata_area / METADATA_AREA_SHARE,
            area_free: report.group.metadata_area_free,
            disks: report.disks.len(),
            is_complete: report.group.missing_disks == 0,
            foreign: foreign_bytes(&report, &self.thin_pool),
        };
        *lock(&self.group) = Some((since, group));
        Ok(group)
    }

    fn note_area_taken(&self) {
        if let Some((_, group)) = &mut *lock(&self.group) {
            group.area_free = group.area_free.saturating_sub(AREA_OF_VOLUME);
        }
    }

    /// The size of one, in bytes.
    pub(super) fn extent(&self) -> Result<u64> {
        Ok(self.group(Freshness::Recent)?.extent)
    }

    /// Of what was deleted or made, numbers from before know nothing.
    pub(super) fn forget_numbers(&self) {
        *lock(&self.status) = None;
        *lock(&self.group) = None;
    }

    /// To our volumes what their records say.
    fn promised(&self) -> u128 {
        self.catalogue.volume_objects().records().map(|volume| promise(&volume)).sum()
    }
}

/// To volumes of others in the thin pool, their size.
fn foreign_bytes(report: &GroupReport, thin_pool: &str) -> u128 {
    let is_foreign = |lv: &&Lv| {
        lv.kind() == LvKind::Thin
            && lv.thin_pool == thin_pool
            && lv.tags.iter().all(|tag| own_tag(tag).is_none())
    };
    report.volumes.iter().filter(is_foreign).map(|lv| u128::from(lv.size)).sum()
}

fn pool_capacity(available_bytes: u64) -> PoolCapacity {
    let largest_volume = available_bytes / ALLOCATION_UNIT * ALLOCATION_UNIT;
    PoolCapacity { available_bytes, largest_volume }
}

fn promise(volume: &VolumeRecord) -> u128 {
    match volume.parameters.provisioning {
        Provisioning::Thin => u128::from(volume.capacity_bytes),
        // In extents of its own.
        Provisioning::Thick => 0,
    }
}

fn saturated(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Why something cannot be reserved.
struct Refusal {
    error: Error,
    /// By how much a larger thin pool would help.
    growth: Option<u64>,
}

/// `None`: no larger thin pool would help.
fn growth_for(room: &Room, demand: Demand) -> Option<u64> {
    match (room.thin_shortage(), demand) {
        (_, Demand::Thick { .. })
        | (Some(Shortage::ThinPoolFailed(_) | Shortage::MetadataArea), _)
        | (None, Demand::Snapshot) => None,
        (Some(Shortage::Metadata), _) => Some(0),
        (Some(Shortage::Floor), Demand::Snapshot) => Some(1),
        (Some(Shortage::Floor) | None, Demand::Thin(bytes)) => {
            Some(room.growth_for(bytes).max(1)).filter(|_| bytes <= room.promisable())
        }
    }
}
