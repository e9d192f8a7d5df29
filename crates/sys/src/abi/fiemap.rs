//! The map of a file's extents.

use std::os::fd::AsFd;

pub(crate) use linux_raw_sys::ioctl::{
    FIEMAP_EXTENT_LAST, FIEMAP_EXTENT_MERGED, FIEMAP_EXTENT_SHARED, FIEMAP_EXTENT_UNWRITTEN,
};
use linux_raw_sys::ioctl::{FIEMAP_FLAG_SYNC, FS_IOC_FIEMAP};
use rustix::io::Result;

use super::fill;

const PAGE_EXTENTS: usize = 512;
const PAGE_EXTENT_COUNT: u32 = 512;

#[repr(C)]
struct FiemapHeader {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FiemapExtent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    reserved64: [u64; 2],
    pub(crate) flags: u32,
    reserved: [u32; 3],
}

impl FiemapExtent {
    pub(crate) const fn nothing() -> Self {
        Self { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] }
    }
}

#[repr(C)]
struct FiemapRequest {
    header: FiemapHeader,
    extents: [FiemapExtent; PAGE_EXTENTS],
}

const _: () = {
    assert!(size_of::<FiemapHeader>() == 32);
    assert!(size_of::<FiemapExtent>() == 56);
    // The kernel writes the extents right behind the header.
    assert!(size_of::<FiemapRequest>() == 32 + 56 * PAGE_EXTENTS);
};

/// As many extents as fit one call, and the room for them, used again for the next.
pub(crate) struct ExtentPage(Box<FiemapRequest>);

impl ExtentPage {
    pub(crate) fn empty() -> Self {
        let header = header_from(0, 0);
        Self(Box::new(FiemapRequest { header, extents: [FiemapExtent::nothing(); PAGE_EXTENTS] }))
    }

    /// Asks for the extents that end after `start`. What is only in memory is written first, or
    /// it would have no address.
    pub(crate) fn read(&mut self, file: impl AsFd, start: u64) -> Result<()> {
        let header =
            FiemapHeader { flags: FIEMAP_FLAG_SYNC, ..header_from(start, PAGE_EXTENT_COUNT) };
        self.0.header = header;
        fill::<FS_IOC_FIEMAP, _>(file, &mut *self.0)
    }

    pub(crate) fn extents(&self) -> &[FiemapExtent] {
        let mapped = usize::try_from(self.0.header.mapped_extents).unwrap_or(PAGE_EXTENTS);
        &self.0.extents[..mapped.min(PAGE_EXTENTS)]
    }
}

fn header_from(start: u64, extent_count: u32) -> FiemapHeader {
    // No length at all would be a mistake, not the end of the file.
    let length = (u64::MAX - start).max(1);
    FiemapHeader { start, length, flags: 0, mapped_extents: 0, extent_count, reserved: 0 }
}

/// Room for no extent makes FIEMAP count them instead of listing them.
pub(crate) fn extent_count(file: impl AsFd) -> Result<u32> {
    let mut header = header_from(0, 0);
    fill::<FS_IOC_FIEMAP, _>(file, &mut header)?;
    Ok(header.mapped_extents)
}
