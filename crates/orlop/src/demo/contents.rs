//! Data that can be made again, written to files and compared with them.
//!
//! A file has blocks of one mebibyte, each filled from a number; what the file should hold is known without reading
//! it. Its checksum is the SHA-256 of the SHA-256 sums of its blocks, so that a change of some of them costs no
//! second look at the others.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use sha2::{Digest, Sha256};

use super::MIB;
use super::failure::{Failure, check};
use super::interrupt::Interrupt;

const BLOCK: usize = 1 << 20;

type BlockSum = [u8; 32];

/// Called with the blocks that are done.
pub(super) type Progress<'a> = &'a mut dyn FnMut(u64);

/// What a file should hold.
#[derive(Clone)]
pub(super) struct Contents {
    sums: Vec<BlockSum>,
}

impl Contents {
    /// Writes a new file, and returns when it is on the disk.
    pub(super) fn write(
        path: &Path,
        bytes: u64,
        seed: u64,
        (interrupt, progress): (&Interrupt, Progress<'_>),
    ) -> Result<Self, Failure> {
        let file = File::create_new(path).map_err(Failure::cannot("make a file in a volume"))?;
        let mut contents =
            Self { sums: vec![[0; 32]; usize::try_from(bytes / MIB).unwrap_or(usize::MAX)] };
        contents.fill(&file, 0..bytes / MIB, seed, (interrupt, progress))?;
        Ok(contents)
    }

    /// Overwrites these blocks of the file.
    pub(super) fn overwrite(
        &mut self,
        path: &Path,
        blocks: &[Range<u64>],
        seed: u64,
        (interrupt, progress): (&Interrupt, Progress<'_>),
    ) -> Result<(), Failure> {
        let file = File::options().write(true).open(path);
        let file = file.map_err(Failure::cannot("open a file in a volume"))?;
        for range in blocks {
            self.fill(&file, range.clone(), seed, (interrupt, progress))?;
        }
        Ok(())
    }

    fn fill(
        &mut self,
        file: &File,
        blocks: Range<u64>,
        seed: u64,
        (interrupt, progress): (&Interrupt, Progress<'_>),
    ) -> Result<(), Failure> {
        let cannot = || Failure::cannot::<std::io::Error>("write to a volume");
        let mut block = vec![0; BLOCK];
        for number in blocks {
            interrupt.check()?;
            make_block(&mut block, seed, number);
            file.write_all_at(&block, number * MIB).map_err(cannot())?;
            if let Some(sum) = usize::try_from(number).ok().and_then(|at| self.sums.get_mut(at)) {
                *sum = Sha256::digest(&block).into();
            }
            progress(1);
        }
        file.sync_all().map_err(cannot())
    }

    pub(super) fn checksum(&self) -> String {
        let whole = self.sums.iter().fold(Sha256::new(), |so_far, sum| so_far.chain_update(sum));
        let whole: BlockSum = whole.finalize().into();
        whole.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads the file from its device and compares every block.
    pub(super) fn compare(
        &self,
        path: &Path,
        whose: &str,
        (interrupt, progress): (&Interrupt, Progress<'_>),
    ) -> Result<(), Failure> {
        let mut file =
            File::open(path).map_err(Failure::cannot(format!("open {}", path.display())))?;
        // What is still in memory proves nothing about the disk.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        let length = file.metadata().map_err(Failure::cannot(format!("inspect {whose}")))?.len();
        let expected = u64::try_from(self.sums.len()).unwrap_or(u64::MAX).saturating_mul(MIB);
        check(length == expected, || format!("{whose} has {length} bytes instead of {expected}"))?;
        let mut block = vec![0; BLOCK];
        for (number, expected) in self.sums.iter().enumerate() {
            interrupt.check()?;
            file.read_exact(&mut block).map_err(Failure::cannot(format!("read {whose}")))?;
            let found: BlockSum = Sha256::digest(&block).into();
            check(found == *expected, || {
                format!(
                    "{whose} holds other data than was written, in the mebibyte from {number} MiB on"
                )
            })?;
            progress(1);
        }
        Ok(())
    }
}

/// splitmix64: no block is like another, and none can be compressed.
fn make_block(block: &mut [u8], seed: u64, number: u64) {
    let mut state =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03);
    for word in block.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
