//! The numbers of a pool at one time, and what they allow.

use orlop_model::{Bytes, Error, Result};

use super::super::extension::{Extents, Spread};
use super::super::thin_status::{Mode, ThinStatus};
use super::reservation::Demand;

/// Of the thin pool's metadata. Each snapshot shares its origin's, and then needs its own piece by piece as either is
/// written to: that can take more than all that exists now.
const MOST_METADATA_PERCENT: u32 = 80;
/// Of the metadata area: what a volume group needs at the end, to be changed so that it needs less.
const METADATA_AREA_FLOOR: u64 = 32 << 10;

/// Of the volume group, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupRoom {
    /// The size of an extent.
    pub(super) extent: u64,
    /// In free extents, less what is reserved for thick volumes.
    pub(super) free: u64,
    /// What there is to describe the volume group.
    pub(super) area: u64,
    pub(super) area_free: u64,
    /// How many physical volumes it has.
    pub(super) disks: usize,
    /// None of them is missing. LVM makes nothing otherwise.
    pub(super) is_complete: bool,
    /// How the thin pool lies on them.
    pub(super) spread: Spread,
    /// The sizes of volumes of others in the thin pool.
    pub(super) foreign: u128,
}

impl GroupRoom {
    pub(super) fn extents(&self) -> Extents {
        Extents { size: self.extent.max(1), free: self.free, spread: self.spread }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) thin: ThinStatus,
    pub(super) floor: u64,
    pub(super) overcommit_percent: u32,
    /// To volumes, and by calls that are under way.
    pub(super) promised: u128,
    /// The size that the thin pool's data may grow to, and the floor that it has then.
    pub(super) extended: (u64, u64),
    pub(super) group: GroupRoom,
}

/// What is missing, and what would mend it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    /// The thin pool takes no more writes, or soon none: it needs a repair.
    ThinPoolFailed(Mode),
    Floor,
    Metadata,
    MetadataArea,
}

impl Room {
    /// With this size, of which so much is the floor.
    fn promisable_of(&self, (size, floor): (u64, u64)) -> u64 {
        let usable = u128::from(size.saturating_sub(floor));
        let with_overcommit = usable * u128::from(self.overcommit_percent) / 100;
        u64::try_from(with_overcommit.saturating_sub(self.promised)).unwrap_or(u64::MAX)
    }

    pub(super) fn promisable_now(&self) -> u64 {
        self.promisable_of((self.thin.data.size, self.floor))
    }

    /// Also by enlarging the thin pool.
    pub(super) fn promisable(&self) -> u64 {
        self.promisable_now().max(self.promisable_of(self.extended))
    }

    /// What a thin volume may have that is made now.
    pub(super) fn available(&self) -> u64 {
        match self.group.is_complete && self.thin_shortage().is_none() {
            true => self.promisable(),
            false => 0,
        }
    }

    /// By how much the thin pool would have to grow, so that so much more could be promised.
    pub(super) fn growth_for(&self, bytes: u64) -> u64 {
        let missing = u128::from(bytes.saturating_sub(self.promisable_now()));
        let physical = (missing * 100).div_ceil(u128::from(self.overcommit_percent.max(1)));
        u64::try_from(physical).unwrap_or(u64::MAX)
    }

    /// What keeps something from being made in the thin pool.
    pub(super) fn thin_shortage(&self) -> Option<Shortage> {
        match self.thin.mode {
            Mode::Writable | Mode::OutOfData if !self.thin.needs_check => {}
            Mode::Writable | Mode::OutOfData | Mode::ReadOnly => {
                return Some(Shortage::ThinPoolFailed(Mode::ReadOnly));
            }
            Mode::Failed => return Some(Shortage::ThinPoolFailed(Mode::Failed)),
        }
        if self.thin.metadata.is_above(MOST_METADATA_PERCENT) {
            return Some(Shortage::Metadata);
        }
        let is_below_floor = self.thin.data.free() <= self.floor;
        is_below_floor.then_some(Shortage::Floor).or_else(|| self.area_shortage())
    }

    /// The same of anything.
    pub(super) fn area_shortage(&self) -> Option<Shortage> {
        (self.group.area_free < METADATA_AREA_FLOOR).then_some(Shortage::MetadataArea)
    }

    pub(super) fn check(&self, pool: &str, demand: Demand) -> Result<()> {
        let short = match demand {
            Demand::Thin(_) | Demand::Snapshot => self.thin_shortage(),
            Demand::Thick { .. } => self.area_shortage(),
        };
        if let Some(shortage) = short {
            return Err(Error::exhausted(self.text(pool, shortage)));
        }
        match demand {
            Demand::Thin(bytes) if bytes > self.promisable_now() => Err(Error::exhausted(format!(
                "cannot reserve {} in pool {pool}: {} of its {} can be promised yet, less the floor of {}; delete \
                     volumes, enlarge the thin pool, or raise the pool's overcommit",
                Bytes(bytes),
                Bytes(self.promisable_now()),
                Bytes(self.thin.data.size),
                Bytes(self.floor)
            ))),
            Demand::Thick { disks, .. } if disks > self.group.disks => {
                Err(Error::exhausted(format!(
                    "cannot reserve space in pool {pool}: this layout takes {disks} disks, and its volume group has \
                     {}; add disks with `vgextend`, or ask for fewer stripes or copies",
                    self.group.disks
                )))
            }
            Demand::Thick { extents, .. } if extents > self.group.free => {
                Err(Error::exhausted(format!(
                    "cannot reserve {} in pool {pool}: {} are free in its volume group, outside of the thin pool; \
                     delete thick volumes, or add a disk with `vgextend`",
                    Bytes(extents),
                    Bytes(self.group.free)
                )))
            }
            Demand::Thin(_) | Demand::Snapshot | Demand::Thick { .. } => Ok(()),
        }
    }

    pub(super) fn text(&self, pool: &str, shortage: Shortage) -> String {
        let ThinStatus { data, metadata, .. } = self.thin;
        match shortage {
            Shortage::ThinPoolFailed(Mode::Failed) => format!(
                "the thin pool of pool {pool} has failed, as its metadata cannot be read; look for errors of its disks \
                 in the kernel log, unpublish its volumes, and repair it with `lvconvert --repair`"
            ),
            Shortage::ThinPoolFailed(Mode::Writable | Mode::OutOfData | Mode::ReadOnly) => format!(
                "the thin pool of pool {pool} takes no writes until its metadata was checked: it was full, or could not \
                 be written ({} of {} are used); unpublish its volumes, deactivate them and the pool, enlarge the \
                 metadata with `lvextend --poolmetadatasize` if it is full, and repair it with `lvconvert --repair`",
                Bytes(metadata.used),
                Bytes(metadata.size)
            ),
            Shortage::Floor => format!(
                "pool {pool} is below its floor: {} free of {}, floor {}; delete volumes or snapshots, run fstrim on \
                 mounted volumes in which files were deleted, or enlarge its thin pool with `lvextend`",
                Bytes(data.free()),
                Bytes(data.size),
                Bytes(self.floor)
            ),
            Shortage::Metadata => format!(
                "the metadata of the thin pool of pool {pool} is nearly full: {} of {} are used; delete snapshots, or \
                 enlarge it with `lvextend --poolmetadatasize`: a thin pool without metadata has to be repaired",
                Bytes(metadata.used),
                Bytes(metadata.size)
            ),
            Shortage::MetadataArea => format!(
                "the volume group of pool {pool} can hardly describe more volumes: {} are free of the {} that its \
                 smallest metadata area has for that; delete volumes or snapshots, or use physical volumes with a \
                 larger one (`pvcreate --metadatasize`)",
                Bytes(self.group.area_free),
                Bytes(self.group.area)
            ),
        }
    }
}

#[cfg(test)]
mod tests;
