//! Bytes that differ from all others, and from themselves at another offset.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

const BLOCK: usize = 4096;
const CHUNK: usize = 256 * BLOCK;

/// Pseudo-random data without end, the same for the same seed. Any range can be made by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    seed: u64,
}

impl Pattern {
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// `offset` is a multiple of 4096.
    pub fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let block_size = u64::try_from(BLOCK).expect("a small number");
        assert_eq!(offset % block_size, 0, "patterns start at whole blocks");
        let mut bytes = Vec::with_capacity(length.next_multiple_of(BLOCK));
        let mut block = offset / block_size;
        while bytes.len() < length {
            self.push_block(block, &mut bytes);
            block += 1;
        }
        bytes.truncate(length);
        bytes
    }

    fn push_block(&self, block: u64, bytes: &mut Vec<u8>) {
        let mut state = mix(self.seed.wrapping_add(mix(block)));
        for _ in 0..BLOCK / 8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
    }

    /// Replaces the file, or overwrites a device from its start; on stable storage afterwards.
    pub fn write(&self, path: &Path, length: u64) {
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(!is_device(path))
            .open(path)
            .unwrap_or_else(|error| panic!("open {}: {error}", path.display()));
        for (offset, size) in chunks(0, length) {
            file.write_all(&self.bytes(offset, size))
                .unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        }
        file.sync_all().expect("sync test data");
    }

    /// Overwrites a range of what is there; on stable storage afterwards.
    pub fn write_at(&self, path: &Path, offset: u64, length: u64) {
        let file = File::options().write(true).open(path);
        let file = file.unwrap_or_else(|error| panic!("open {}: {error}", path.display()));
        for (at, size) in chunks(offset, length) {
            file.write_all_at(&self.bytes(at, size), at).expect("write test data");
        }
        file.sync_all().expect("sync test data");
    }

    /// Are the first bytes, up to `length`, those that [`Self::write`] wrote?
    #[track_caller]
    pub fn check(&self, path: &Path, length: u64) {
        self.check_at(path, 0, length);
    }

    #[track_caller]
    pub fn check_at(&self, path: &Path, offset: u64, length: u64) {
        let file = open_to_read(path);
        for (at, size) in chunks(offset, length) {
            let mut found = vec![0; size];
            file.read_exact_at(&mut found, at)
                .unwrap_or_else(|error| panic!("read {} at {at}: {error}", path.display()));
            let differs = found != self.bytes(at, size);
            assert!(!differs, "{} differs near byte {at}", path.display());
        }
    }
}

/// A number that differs for any two contents that occur in a test.
pub fn fingerprint(path: &Path) -> u64 {
    let mut file = open_to_read(path);
    let mut buffer = vec![0; CHUNK];
    let zeros = vec![0; CHUNK];
    let mut state = 0;
    loop {
        let length = read_fully(&mut file, &mut buffer);
        // Images are sparse.
        let found = &buffer[..length];
        let words: &[u8] = if *found == zeros[..length] { &[] } else { found };
        for word in words.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            state = mix(state ^ u64::from_le_bytes(bytes));
        }
        state = mix(state ^ u64::try_from(length).expect("a small number"));
        if length < CHUNK {
            return state;
        }
    }
}

pub fn is_all_zero(path: &Path, offset: u64, length: u64) -> bool {
    let file = open_to_read(path);
    chunks(offset, length).all(|(at, size)| {
        let mut found = vec![0; size];
        file.read_exact_at(&mut found, at).expect("read test data");
        found.iter().all(|byte| *byte == 0)
    })
}

/// One write past the page cache, so that its outcome is the device's own.
pub fn write_direct(path: &Path, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    // The kernel wants the buffer aligned as the device's blocks are.
    let mut buffer = vec![0; bytes.len() + BLOCK];
    let start = buffer.as_ptr().align_offset(BLOCK);
    buffer[start..start + bytes.len()].copy_from_slice(bytes);
    file.write_all_at(&buffer[start..start + bytes.len()], offset)?;
    file.sync_all()
}

fn open_to_read(path: &Path) -> File {
    File::open(path).unwrap_or_else(|error| panic!("open {}: {error}", path.display()))
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

fn read_fully(file: &mut File, buffer: &mut [u8]) -> usize {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]).expect("read test data") {
            0 => break,
            more => length += more,
        }
    }
    length
}

fn chunks(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize)> {
    let chunk = u64::try_from(CHUNK).expect("a small number");
    (0..length.div_ceil(chunk)).map(move |index| {
        let size = chunk.min(length - index * chunk);
        let size = usize::try_from(size).expect("at most a chunk");
        (offset + index * chunk, size)
    })
}

/// Not fastrand: the pools in tests/fixtures hold these bytes.
/// SplitMix64's finalizer: every bit of the input changes about half of those of the output.
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
