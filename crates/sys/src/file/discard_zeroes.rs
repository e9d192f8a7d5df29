//! Giving back the blocks of a thin block device that hold only zeroes.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{OFlags, fsync};

use crate::abi;
use crate::error::{Context, Error, Result};
use crate::resolve::open_device;
use crate::zeroes::is_zero;

/// More in one call would keep the process from ending for as long as the device takes.
const LONGEST_DISCARD: u64 = 1 << 30;
const SECTOR: usize = 4096;

/// Discards each unit of the device, which `unit` bytes are, that holds nothing but zeroes. The last one may be shorter.
/// Nothing may have the device open: it is claimed, and `EBUSY` if it is mounted.
pub fn discard_zeroes(device: &Path, unit: u64) -> Result<()> {
    let opened = open_device("open", device, OFlags::RDWR | OFlags::EXCL)?;
    let file = File::from(opened);
    let length = abi::block_device_size(&file).on("read the size of", device)?;
    let refused = |_| Error::refused("read", device, "its units are too large");
    let mut buffer = vec![0; usize::try_from(unit).map_err(refused)?];
    let (mut zeroes, mut offset) = (0..0, 0);
    while offset < length {
        let left = usize::try_from(length - offset).unwrap_or(usize::MAX);
        let taken = left.min(buffer.len());
        let read = &mut buffer[..taken];
        file.read_exact_at(read, offset).on("read", device)?;
        let end = offset.saturating_add(u64::try_from(taken).unwrap_or(u64::MAX));
        match is_zero(read) {
            true if zeroes.end == offset => zeroes.end = end,
            true => {
                discard(&file, device, &zeroes)?;
                zeroes = offset..end;
            }
            false => {}
        }
        offset = end;
    }
    discard(&file, device, &zeroes)?;
    fsync(&file).effect_on("sync", device)
}

fn discard(file: &File, device: &Path, range: &Range<u64>) -> Result<()> {
    let mut start = range.start;
    while start < range.end {
        let length = LONGEST_DISCARD.min(range.end - start);
        abi::discard(file, start, length).effect_on("discard a part of", device)?;
        start += length;
    }
    Ok(())
}

/// Reads the first sector of a block device from its disk, whatever is cached.
pub fn read_uncached(device: &Path) -> Result<()> {
    const OPERATION: &str = "read";
    let opened = open_device(OPERATION, device, OFlags::RDONLY | OFlags::DIRECT)?;
    let mut room = vec![0; 2 * SECTOR];
    let start = room.as_ptr().align_offset(SECTOR);
    let too_small = || Error::refused(OPERATION, device, "it is not aligned");
    let sector = room.get_mut(start..start + SECTOR).ok_or_else(too_small)?;
    rustix::io::pread(opened, sector, 0).on(OPERATION, device).map(drop)
}
