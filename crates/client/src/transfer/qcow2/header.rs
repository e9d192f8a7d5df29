//! The header of a qcow2 image.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub(in super::super) const MAGIC: [u8; 4] = *b"QFI\xfb";

/// Of version 3, up to the kind of compression.
const LENGTH: usize = 112;
/// As QEMU has it: 32 MiB, which are 2 PiB of a disk with the usual clusters.
const MAX_TABLES: u64 = (32 << 20) / 8;
/// More than any pool has, and a number that cannot overflow.
const MAX_SIZE: u64 = 1 << 50;

/// Incompatible features: a reader that does not know one must refuse the image.
const IS_CORRUPT: u64 = 1 << 1;
const HAS_DATA_FILE: u64 = 1 << 2;
const HAS_COMPRESSION_TYPE: u64 = 1 << 3;
const IS_DIRTY: u64 = 1;
const SUPPORTED: u64 = IS_DIRTY | HAS_COMPRESSION_TYPE;
const DEFLATE: u8 = 0;

#[derive(Debug)]
pub(in super::super) struct Header {
    pub(super) version: u32,
    pub(super) cluster_bits: u32,
    /// Of the disk.
    pub(super) size: u64,
    pub(super) tables_offset: u64,
}

/// Why an image is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum Refusal {
    #[error("it is no qcow2 image")]
    OtherFormat,
    #[error("version {0} of qcow2 is not known")]
    Version(u32),
    #[error(
        "it needs another file, its backing file, which is not read as an image could name any file of this machine; if \
         you trust it, make one of both with `qemu-img convert -O raw FILE RAW`"
    )]
    BackingFile,
    #[error(
        "its data is in another file, which is not read as an image could name any file of this machine; if you trust it, \
         make one of both with `qemu-img convert -O raw FILE RAW`"
    )]
    DataFile,
    #[error("it is encrypted; make an image without encryption of it with `qemu-img convert`")]
    Encrypted,
    #[error("it is marked as corrupt; mend it with `qemu-img check -r all FILE`")]
    Corrupt,
    #[error(
        "it has features that are not known here, such as zstd or subclusters; `qemu-img convert -O raw FILE RAW` makes \
         a raw image of it"
    )]
    Features,
    #[error("it says that its disk has {0} bytes, which is too much or nothing")]
    Size(u64),
    #[error("its clusters or tables have a size that makes no sense")]
    Nonsense,
}

impl Header {
    pub(super) fn read(file: &File) -> io::Result<Result<Self, Refusal>> {
        let mut bytes = [0; LENGTH];
        let mut length = 0;
        while length < LENGTH {
            let offset = u64::try_from(length).map_err(io::Error::other)?;
            match file.read_at(&mut bytes[length..], offset)? {
                0 => break,
                read => length += read,
            }
        }
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8; LENGTH]) -> Result<Self, Refusal> {
        if bytes[..4] != MAGIC {
            return Err(Refusal::OtherFormat);
        }
        let version = number_at(bytes, 4);
        if !(2..=3).contains(&version) {
            return Err(Refusal::Version(version));
        }
        let features = if version == 3 { long_at(bytes, 72) } else { 0 };
        if long_at(bytes, 8) != 0 {
            return Err(Refusal::BackingFile);
        }
        if number_at(bytes, 32) != 0 {
            return Err(Refusal::Encrypted);
        }
        if features & HAS_DATA_FILE != 0 {
            return Err(Refusal::DataFile);
        }
        if features & IS_CORRUPT != 0 {
            return Err(Refusal::Corrupt);
        }
        let is_packed_otherwise = features & HAS_COMPRESSION_TYPE != 0 && bytes[104] != DEFLATE;
        if features & !SUPPORTED != 0 || is_packed_otherwise {
            return Err(Refusal::Features);
        }
        let size = long_at(bytes, 24);
        if size == 0 || size > MAX_SIZE {
            return Err(Refusal::Size(size));
        }
        let cluster_bits = number_at(bytes, 20);
        if !(9..=21).contains(&cluster_bits) {
            return Err(Refusal::Nonsense);
        }
        let header = Self { version, cluster_bits, size, tables_offset: long_at(bytes, 40) };
        let count = header.table_count();
        match count <= MAX_TABLES && count <= u64::from(number_at(bytes, 36)) {
            true => Ok(header),
            false => Err(Refusal::Nonsense),
        }
    }

    pub(super) fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// A table takes one cluster.
    pub(super) fn clusters_of_table(&self) -> u64 {
        self.cluster() / 8
    }

    pub(super) fn table_count(&self) -> u64 {
        self.size.div_ceil(self.cluster() * self.clusters_of_table())
    }
}

fn number_at(bytes: &[u8; LENGTH], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn long_at(bytes: &[u8; LENGTH], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
