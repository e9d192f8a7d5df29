//! The blocks of a thin pool's metadata: the superblock, and the nodes of B-trees. Their form is that of Linux
//! (drivers/md/dm-thin-metadata.c and drivers/md/persistent-data), which has not changed for ten years.
//!
//! All numbers are little-endian. Every block has a checksum and says where it lies, so that one which was lost, or not
//! written where it belongs, is noticed. Nothing that a block says is used before it is checked.

use orlop_sys::checksum::running_crc32c;

pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) type Block = [u8; BLOCK_BYTES];

pub(super) const SUPERBLOCK: u64 = 0;
pub(super) const SUPERBLOCK_SALT: u32 = 160_774;
pub(super) const NODE_SALT: u32 = 121_107;
const MAGIC: u64 = 27_022_010;
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;
const SECTOR: u64 = 512;
const SECTORS_PER_BLOCK: u32 = 8;
/// 64 KiB, of which a chunk is a multiple, and 1 GiB.
const SMALLEST_CHUNK: u32 = 128;
const LARGEST_CHUNK: u32 = 2 << 20;
const NEEDS_CHECK: u32 = 1;

const INTERNAL: u32 = 1;
const LEAF: u32 = 2;
const NODE_HEADER: usize = 32;
const KEY: usize = 8;

#[derive(Debug, thiserror::Error)]
pub(crate) enum MetadataError {
    #[error("block {block} of its metadata {reason}")]
    Damaged { block: u64, reason: String },
    /// Its device did not deliver.
    #[error("{0}")]
    Unread(#[source] orlop_sys::Error),
}

impl MetadataError {
    pub(super) fn damaged(block: u64, reason: impl Into<String>) -> Self {
        Self::Damaged { block, reason: reason.into() }
    }
}

pub(super) type Read<T> = Result<T, MetadataError>;

/// Where blocks are read from: a device, or the memory of a test.
pub(super) trait Blocks {
    /// An error if there is no such block.
    fn read(&mut self, block: u64) -> Read<&Block>;
}

/// Counts what is read of others.
pub(super) struct Counted<'a, B> {
    pub(super) blocks: &'a mut B,
    pub(super) count: usize,
}

impl<B: Blocks> Blocks for Counted<'_, B> {
    fn read(&mut self, block: u64) -> Read<&Block> {
        self.count += 1;
        self.blocks.read(block)
    }
}

/// What of the superblock is of use here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Superblock {
    /// The kernel has found something wrong, and changes nothing until a check has repaired it.
    pub(super) needs_check: bool,
    /// The block of the superblock that is reserved for readers; it has this form, too.
    pub(super) reserved: Option<u64>,
    /// The root of the tree from thin devices to the roots of their mappings.
    pub(super) mappings: u64,
    /// The root of the tree from thin devices to what else is known of them.
    pub(super) devices: u64,
    pub(super) chunk_bytes: u64,
}

impl Superblock {
    pub(super) fn read(blocks: &mut impl Blocks, at: u64) -> Read<Self> {
        let block = blocks.read(at)?;
        let fields = Fields { block, at };
        fields.check_sum(SUPERBLOCK_SALT)?;
        if fields.number(32)? != MAGIC || !VERSIONS.contains(&fields.half(40)?) {
            return Err(fields.damaged("is no superblock of a known version"));
        }
        if fields.half(360)? != 0 {
            return Err(fields.damaged("says that a newer kernel has written it"));
        }
        let chunk = fields.half(336)?;
        let is_chunk = (SMALLEST_CHUNK..=LARGEST_CHUNK).contains(&chunk)
            && chunk.is_multiple_of(SMALLEST_CHUNK);
        if fields.half(340)? != SECTORS_PER_BLOCK || !is_chunk {
            return Err(fields.damaged("has an impossible size of blocks or chunks"));
        }
        Ok(Self {
            needs_check: fields.half(4)? & NEEDS_CHECK != 0,
            reserved: Some(fields.number(56)?).filter(|block| *block != 0),
            mappings: fields.number(320)?,
            devices: fields.number(328)?,
            chunk_bytes: u64::from(chunk) * SECTOR,
        })
    }
}

/// What the leaves of a tree hold for each key.
pub(super) trait LeafValue: Sized {
    const BYTES: usize;

    /// `None`: there are not so many bytes.
    fn parse(bytes: &[u8]) -> Option<Self>;
}

/// The root of another tree.
impl LeafValue for u64 {
    const BYTES: usize = 8;

    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes.first_chunk().copied()?))
    }
}

/// The chunk of the pool's data that a chunk of a thin device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping(pub(super) u64);

/// In the other bits is when it was mapped.
const TIME_BITS: u32 = 24;

impl LeafValue for Mapping {
    const BYTES: usize = 8;

    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self(u64::parse(bytes)? >> TIME_BITS))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceDetails {
    pub(super) mapped_chunks: u64,
    pub(super) birth: Birth,
}

/// When a thin device was made. No two that have the same number at different times have the same: what makes a snapshot
/// raises the time, and what makes a volume the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Birth {
    transaction: u64,
    time: u32,
}

impl LeafValue for DeviceDetails {
    const BYTES: usize = 24;

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (mapped_chunks, rest) = bytes.split_first_chunk()?;
        let (transaction, rest) = rest.split_first_chunk()?;
        let time = rest.first_chunk()?;
        Some(Self {
            mapped_chunks: u64::from_le_bytes(*mapped_chunks),
            birth: Birth {
                transaction: u64::from_le_bytes(*transaction),
                time: u32::from_le_bytes(*time),
            },
        })
    }
}

/// A node of a tree, with its keys in rising order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node<V> {
    /// Each child has the keys from its own on, up to the next one's.
    Internal(Vec<(u64, u64)>),
    Leaf(Vec<(u64, V)>),
}

impl<V: LeafValue> Node<V> {
    pub(super) fn read(blocks: &mut impl Blocks, at: u64) -> Read<Self> {
        let block = blocks.read(at)?;
        let fields = Fields { block, at };
        fields.check_sum(NODE_SALT)?;
        match fields.half(4)? {
            INTERNAL => Ok(Self::Internal(fields.entries()?)),
            LEAF => Ok(Self::Leaf(fields.entries()?)),
            _ => Err(fields.damaged("is no node of a tree")),
        }
    }
}

/// A block that was read, and where.
struct Fields<'a> {
    block: &'a Block,
    at: u64,
}

impl Fields<'_> {
    fn damaged(&self, reason: &str) -> MetadataError {
        MetadataError::damaged(self.at, reason)
    }

    fn half(&self, offset: usize) -> Read<u32> {
        let bytes = self.block.get(offset..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(|| self.damaged("is too short"))
    }

    fn number(&self, offset: usize) -> Read<u64> {
        let number = self.block.get(offset..).and_then(u64::parse);
        number.ok_or_else(|| self.damaged("is too short"))
    }

    fn check_sum(&self, salt: u32) -> Read<()> {
        let summed = running_crc32c(self.block.get(4..).unwrap_or_default()) ^ salt;
        if self.half(0)? != summed {
            return Err(self.damaged("has a wrong checksum"));
        }
        match self.number(8)? == self.at {
            true => Ok(()),
            false => Err(self.damaged("is one that belongs elsewhere")),
        }
    }

    fn entries<V: LeafValue>(&self) -> Read<Vec<(u64, V)>> {
        let count = |offset| Ok(usize::try_from(self.half(offset)?).unwrap_or(usize::MAX));
        let (entries, most, value_bytes) = (count(16)?, count(20)?, count(24)?);
        if value_bytes != V::BYTES {
            return Err(self.damaged("is a node of another tree"));
        }
        let room = (BLOCK_BYTES - NODE_HEADER) / (KEY + V::BYTES);
        if entries > most || most > room {
            return Err(self.damaged("has more entries than it has room for"));
        }
        let keys = self.block.get(NODE_HEADER..).unwrap_or_default();
        let values = keys.get(most * KEY..).unwrap_or_default();
        let pairs = keys.chunks_exact(KEY).zip(values.chunks_exact(V::BYTES)).take(entries);
        let parsed = pairs.filter_map(|(key, value)| Some((u64::parse(key)?, V::parse(value)?)));
        let parsed: Vec<_> = parsed.collect();
        let rises = parsed.is_sorted_by(|(one, _), (next, _)| one < next);
        match rises && parsed.len() == entries {
            true => Ok(parsed),
            false => Err(self.damaged("has its keys in a wrong order")),
        }
    }
}

#[cfg(test)]
mod tests;
