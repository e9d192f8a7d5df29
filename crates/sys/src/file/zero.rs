//! Overwriting with zeroes.

use std::fs::File;
use std::ops::Range;

use rustix::fs::{FallocateFlags, fallocate, fsync};
use rustix::io::retry_on_intr;

use crate::error::{Context, Result};

/// The kernel cannot be interrupted in one call, also not by a signal that ends the process, so it zeroes this much at once.
const PIECE: u64 = 256 << 20;

/// Makes that part of a block device read as zeroes, durably. The device does it itself where it can; elsewhere zeroes are
/// written. Its space stays allocated.
pub fn zero_range(file: &File, range: Range<u64>) -> Result<()> {
    // With `KEEP_SIZE` the kernel would leave out what is past the end, and say nothing.
    let flags = FallocateFlags::ZERO_RANGE;
    let mut start = range.start;
    while start < range.end {
        let length = PIECE.min(range.end - start);
        retry_on_intr(|| fallocate(file, flags, start, length)).effect_on_fd("zero", file)?;
        start += length;
    }
    fsync(file).effect_on_fd("sync", file)
}

#[cfg(test)]
mod tests;
