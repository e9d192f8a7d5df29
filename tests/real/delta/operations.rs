//! All that can be done to a device, at random.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use orlop_sys::tool;
use orlop_tests::*;
use rustix::fs::{FallocateFlags, Mode as FileMode, OFlags, fallocate, open};
use rustix::io::Errno;

const BLOCK: u64 = 4096;
const ALIGNMENT: usize = 4096;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    /// Past the page cache, in whole sectors.
    Write,
    /// Through the page cache and left there, at any byte.
    Scribble,
    Zeroes,
    /// What is there already, once more.
    Rewrite,
    /// BLKZEROOUT that may free blocks.
    Punch,
    /// BLKZEROOUT that keeps them: preallocated blocks that read as zeroes.
    ZeroRange,
    Discard,
}

const CHOICES: [Operation; 12] = [
    Operation::Write,
    Operation::Write,
    Operation::Write,
    Operation::Write,
    Operation::Scribble,
    Operation::Scribble,
    Operation::Zeroes,
    Operation::Rewrite,
    Operation::Punch,
    Operation::Punch,
    Operation::ZeroRange,
    Operation::Discard,
];

pub(crate) struct Device<'a> {
    path: &'a Path,
    direct: File,
    cached: File,
    size: u64,
    sector: u64,
}

impl<'a> Device<'a> {
    pub(crate) fn open(path: &'a Path) -> Self {
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let direct = File::from(open(path, flags, FileMode::empty()).expect("open the device"));
        let cached = File::options().read(true).write(true).open(path).expect("open the device");
        let size = orlop_sys::loopdev::size(path).expect("the size of the device");
        Self { path, direct, cached, size, sector: sector_of(path) }
    }

    /// Tells what was done.
    pub(crate) fn perform(&self, rng: &mut Rng) -> String {
        let operation = *rng.choice(&CHOICES).expect("a non-empty list");
        let (offset, length) = self.place(operation, rng);
        let bytes = usize::try_from(length).expect("a small size");
        match operation {
            Operation::Write => write_aligned(&self.direct, offset, &noise(bytes, rng)),
            Operation::Scribble => {
                self.cached.write_all_at(&noise(bytes, rng), offset).expect("write");
            }
            Operation::Zeroes => write_aligned(&self.direct, offset, &vec![0; bytes]),
            Operation::Rewrite => {
                let mut there = vec![0; bytes];
                self.cached.read_exact_at(&mut there, offset).expect("read");
                write_aligned(&self.direct, offset, &there);
            }
            Operation::Punch => {
                self.clear(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length);
            }
            Operation::ZeroRange => self.clear(FallocateFlags::ZERO_RANGE, offset, length),
            Operation::Discard => self.discard(offset, length),
        }
        format!("{operation:?} {offset}+{length}")
    }

    fn place(&self, operation: Operation, rng: &mut Rng) -> (u64, u64) {
        let is_any_byte = matches!(operation, Operation::Scribble);
        let unit = match rng.u64(..3) == 0 {
            _ if is_any_byte => 1,
            true => self.sector,
            false => BLOCK,
        };
        // Often at the very end, where sizes that are no whole extents meet growth.
        let offset = match rng.u64(..8) == 0 {
            true => self.size - BLOCK * (1 + rng.u64(..4)),
            false => rng.u64(..self.size / unit) * unit,
        };
        let longest = match rng.u64(..8) {
            0 => MIB,
            1..4 => 4 * BLOCK,
            _ => 32 * BLOCK,
        };
        let length = (1 + rng.u64(..longest / unit)) * unit;
        (offset, length.min(self.size - offset))
    }

    /// Where the kernel cannot, it is done by writing.
    fn clear(&self, how: FallocateFlags, offset: u64, length: u64) {
        match fallocate(&self.direct, how, offset, length) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => self.write_zeroes(offset, length),
            Err(error) => panic!("fallocate {offset}+{length}: {error}"),
        }
    }

    fn discard(&self, offset: u64, length: u64) {
        let range = ["-o".to_owned(), offset.to_string(), "-l".to_owned(), length.to_string()];
        let path = self.path.to_str().expect("paths of tests are text").to_owned();
        // A preallocated volume keeps its blocks, so its device knows no discards.
        if tool::run("blkdiscard", range.into_iter().chain([path])).is_err() {
            self.write_zeroes(offset, length);
        }
    }

    fn write_zeroes(&self, offset: u64, length: u64) {
        let zeroes = vec![0; usize::try_from(length).expect("a small size")];
        write_aligned(&self.direct, offset, &zeroes);
    }
}

fn sector_of(path: &Path) -> u64 {
    let number = path.metadata().expect("look at the device").rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let file = format!("/sys/dev/block/{major}:{minor}/queue/logical_block_size");
    let text = std::fs::read_to_string(file).expect("the size of a sector");
    text.trim().parse().expect("a number")
}

fn write_aligned(file: &File, offset: u64, bytes: &[u8]) {
    let mut buffer = vec![0; bytes.len() + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let aligned = &mut buffer[start..start + bytes.len()];
    aligned.copy_from_slice(bytes);
    file.write_all_at(aligned, offset).expect("write past the page cache");
}

/// Differs from all that was written before, in each sector.
fn noise(length: usize, rng: &mut Rng) -> Vec<u8> {
    let salt = rng.u64(..);
    let word = (salt | 1).to_le_bytes();
    let mut bytes = word.repeat(length.div_ceil(word.len()));
    bytes.truncate(length);
    for sector in bytes.chunks_mut(512).filter(|sector| sector.len() >= 8) {
        sector[..8].copy_from_slice(&rng.u64(..).to_le_bytes());
    }
    bytes
}
