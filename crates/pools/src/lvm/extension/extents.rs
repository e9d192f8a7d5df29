//! The free extents of a volume group, and what a thin pool that lies on a RAID can make of them.

use std::fs;
use std::path::Path;

use orlop_model::Result;

use super::super::device_mapper;
use super::super::layout::GroupName;

const SECTOR: u64 = 512;

/// How the parts of a thin pool lie on disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lvm) struct Spread {
    /// Of the data: on so many disks, of which so many hold different data.
    pub(in crate::lvm) disks: u64,
    pub(in crate::lvm) data_disks: u64,
    /// Of the metadata, without the spare.
    pub(in crate::lvm) metadata_copies: u64,
}

impl Spread {
    #[cfg(test)]
    pub(in crate::lvm) const LINEAR: Self = Self { disks: 1, data_disks: 1, metadata_copies: 1 };

    /// By the devices below the thin pool, which has so many bytes of data. What is striped without RAID takes what it holds.
    pub(in crate::lvm) fn of(group: &GroupName, thin_pool: &str, data: u64) -> Result<Self> {
        let images = |part: &str| {
            let name = group.device_name(&format!("{thin_pool}_{part}_rimage_"));
            // Also those of a RAID that is being changed, which have a suffix.
            device_mapper::named(&name)
        };
        let (of_data, of_metadata) = (images("tdata")?, images("tmeta")?);
        let size = of_data.iter().filter_map(|it| size(it.major, it.minor)).max().unwrap_or(0);
        let disks = count(of_data.len()).max(1);
        // Rounded: an image may be a little larger than its share.
        let data_disks = (data + size / 2).checked_div(size).unwrap_or(1).clamp(1, disks);
        Ok(Self { disks, data_disks, metadata_copies: count(of_metadata.len()).max(1) })
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(1)
}

fn size(major: u32, minor: u32) -> Option<u64> {
    let path = Path::new("/sys/dev/block").join(format!("{major}:{minor}/size"));
    let sectors: u64 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    sectors.checked_mul(SECTOR)
}

/// Of the volume group, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lvm) struct Extents {
    /// The size of one.
    pub(in crate::lvm) size: u64,
    /// Of all that are free.
    pub(in crate::lvm) free: u64,
    pub(in crate::lvm) spread: Spread,
}

impl Extents {
    /// As LVM rounds what data grows by: an extent on each disk that holds different data.
    fn data_unit(self) -> u64 {
        self.size.saturating_mul(self.spread.data_disks)
    }

    pub(super) fn data_up(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.data_unit()).saturating_mul(self.data_unit())
    }

    /// What of so many free bytes can be data, if they are on as many disks as it takes.
    pub(super) fn data_in(self, free: u64) -> u64 {
        let on_each = free / self.spread.disks / self.size;
        on_each.saturating_mul(self.data_unit())
    }

    pub(super) fn data_down(self, bytes: u64) -> u64 {
        bytes / self.data_unit() * self.data_unit()
    }

    pub(super) fn metadata_up(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.size).saturating_mul(self.size)
    }

    pub(super) fn metadata_down(self, bytes: u64) -> u64 {
        bytes / self.size * self.size
    }

    /// What metadata takes, with its copies and the spare that LVM keeps for a repair.
    pub(super) fn taken_by_metadata(self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.spread.metadata_copies + 1)
    }

    pub(super) fn metadata_in_free(self) -> u64 {
        self.metadata_down(self.free / (self.spread.metadata_copies + 1))
    }
}
