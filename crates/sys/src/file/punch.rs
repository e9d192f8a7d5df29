//! Turning blocks of zeroes into holes.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate, fsync};
use rustix::io::retry_on_intr;

use super::copy::{length_of, next_data, next_hole};
use crate::error::{Context, Result};
use crate::zeroes::is_zero;

const BLOCK: usize = 4096;
const READ_CHUNK: usize = 256 * BLOCK;
/// A hole in the middle of data is one extent more for every later snapshot to share, so it must
/// be worth it. At the edge of data it is not, and may have any size.
const SHORTEST_INNER_HOLE: u64 = 64 << 10;

/// Gives back the blocks of `file` that hold nothing but zeroes; returns how many bytes. Space
/// that was reserved and never written is left alone. Nothing may write to the file in that time:
/// what is written between the check of a block and its removal would be lost.
pub fn punch_zeroes(file: &File) -> Result<u64> {
    let length = length_of(file)?;
    let mut punched = 0;
    let mut offset = 0;
    while let Some(start) = next_data(file, offset)?.filter(|start| *start < length) {
        let end = next_hole(file, start)?.min(length);
        punched += punch_in_data(file, start..end)?;
        offset = end;
    }
    fsync(file).effect_on_fd("sync", file)?;
    Ok(punched)
}

/// `data` lies between two holes, or the ends of the file.
fn punch_in_data(file: &File, data: Range<u64>) -> Result<u64> {
    let mut buffer = vec![0; READ_CHUNK];
    let mut zeroes = ZeroRun { data: data.clone(), run: data.start..data.start, punched: 0 };
    let mut offset = data.start;
    while offset < data.end {
        let left = usize::try_from(data.end - offset).unwrap_or(usize::MAX);
        let chunk = &mut buffer[..left.min(READ_CHUNK)];
        file.read_exact_at(chunk, offset).on_fd("read", file)?;
        for block in chunk.chunks(BLOCK) {
            let end = offset.saturating_add(u64::try_from(block.len()).unwrap_or(u64::MAX));
            match is_zero(block) {
                true => zeroes.run.end = end,
                false => {
                    zeroes.finish(file)?;
                    zeroes.run = end..end;
                }
            }
            offset = end;
        }
    }
    zeroes.finish(file)?;
    Ok(zeroes.punched)
}

struct ZeroRun {
    data: Range<u64>,
    /// Zeroes up to where was read.
    run: Range<u64>,
    punched: u64,
}

impl ZeroRun {
    fn finish(&mut self, file: &File) -> Result<()> {
        let Range { start, end } = self.run;
        let bytes = end - start;
        let at_edge = start == self.data.start || end == self.data.end;
        if bytes == 0 || (bytes < SHORTEST_INNER_HOLE && !at_edge) {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| fallocate(file, flags, start, bytes))
            .effect_on_fd("punch a hole in", file)?;
        self.punched += bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
