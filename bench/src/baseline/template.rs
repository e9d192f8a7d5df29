//! A formatted ext4 that is shared instead of made again; each copy gets a new UUID.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use orlop_sys::{rand, tool};

use super::{clone, create_sized};

const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 1024;
const UUID: usize = 0x68;
/// Last in the superblock, over all before it.
const CHECKSUM: usize = 0x3FC;

pub(crate) struct Template {
    file: File,
    superblock: [u8; SUPERBLOCK_BYTES],
}

impl Template {
    pub(crate) fn new(path: &Path, bytes: u64) -> Self {
        let file = create_sized(path, bytes);
        mkfs(path);
        file.sync_all().expect("sync the template");
        let mut superblock = [0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut superblock, SUPERBLOCK).expect("read the superblock");
        Self { file, superblock }
    }

    pub(crate) fn copy_to(&self, copy: &File) {
        clone(&self.file, copy);
        copy.write_all_at(&self.renewed(), SUPERBLOCK).expect("write the superblock");
        copy.sync_all().expect("sync the copy");
    }

    fn renewed(&self) -> [u8; SUPERBLOCK_BYTES] {
        let uuid: [u8; 16] = rand::random_bytes().expect("random bytes");
        let mut superblock = self.superblock;
        superblock[UUID..UUID + uuid.len()].copy_from_slice(&uuid);
        let checksum = crc32c(&superblock[..CHECKSUM]);
        superblock[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        superblock
    }
}

/// As Orlop does it; with metadata_csum_seed, the checksums of all other blocks do not depend on
/// the UUID.
pub(crate) fn mkfs(path: &Path) {
    let features = "metadata_csum,metadata_csum_seed";
    let options = "nodiscard,lazy_itable_init=1,lazy_journal_init=1";
    let arguments = ["-F", "-q", "-b", "4096", "-m", "0", "-O", features, "-E", options];
    let arguments = arguments.map(OsStr::new).into_iter().chain([path.as_os_str()]);
    tool::run("mkfs.ext4", arguments).expect("format");
}

/// As ext4 has it: not inverted at the end.
fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82F6_3B78 & 0_u32.wrapping_sub(crc & 1))
        })
    })
}

#[cfg(test)]
mod tests;
