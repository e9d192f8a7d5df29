//! Metadata of arbitrary bytes.

use orlop_sys::checksum::running_crc32c;

use super::block::{
    BLOCK_BYTES, Block, Blocks, Mapping, MetadataError, NODE_SALT, Read, SUPERBLOCK,
    SUPERBLOCK_SALT, Superblock,
};
use super::comparison::{BatchLimits, changed_chunks};
use super::exclusive::exclusive_chunks;
use super::tree;

/// As much of each block as is not zeroes.
const BYTES_OF_BLOCK: usize = 128;
const LIMITS: BatchLimits = BatchLimits { blocks: 64, ranges: 64 };

struct Sealed(Vec<Block>);

impl Blocks for Sealed {
    fn read(&mut self, block: u64) -> Read<&Block> {
        let found = usize::try_from(block).ok().and_then(|block| self.0.get(block));
        found.ok_or_else(|| MetadataError::damaged(block, "is beyond its end"))
    }
}

/// With the place and the checksum that the block should have: other blocks are refused at once.
fn sealed(bytes: &[u8], at: u64, salt: u32) -> Block {
    let mut block = [0; BLOCK_BYTES];
    for (to, from) in block.iter_mut().zip(bytes) {
        *to = *from;
    }
    for (to, from) in block.iter_mut().skip(8).zip(at.to_le_bytes()) {
        *to = from;
    }
    let sum = running_crc32c(block.get(4..).unwrap_or_default()) ^ salt;
    for (to, from) in block.iter_mut().zip(sum.to_le_bytes()) {
        *to = from;
    }
    block
}

/// Is it a superblock, or are it nodes of trees, the first two of which are roots?
pub(crate) fn thin_metadata(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    if kind % 2 == 0 {
        let mut blocks = Sealed(vec![sealed(rest, SUPERBLOCK, SUPERBLOCK_SALT)]);
        if let Ok(superblock) = Superblock::read(&mut blocks, SUPERBLOCK) {
            assert!(superblock.chunk_bytes.is_multiple_of(64 << 10));
        }
        return;
    }
    let nodes = rest.chunks(BYTES_OF_BLOCK).zip(0..);
    let mut blocks = Sealed(nodes.map(|(bytes, at)| sealed(bytes, at, NODE_SALT)).collect());
    compare(&mut blocks);
    let all = tree::entries::<Mapping>(&mut blocks, 0, 64);
    let exclusive = exclusive_chunks(&mut blocks, 0, [1].into_iter(), 64);
    if let (Ok(Some(all)), Ok(Some(exclusive))) = (all, exclusive) {
        assert!(usize::try_from(exclusive).is_ok_and(|exclusive| exclusive <= all.len()));
    }
    drop(tree::find::<Mapping>(&mut blocks, 1, 7));
}

/// Ranges rise, and each batch gets further, whatever the trees are.
fn compare(blocks: &mut Sealed) {
    let mut position = 0;
    for _ in 0..64 {
        let Ok(batch) = changed_chunks(blocks, (Some(0), 1), position..u64::MAX, LIMITS) else {
            return;
        };
        let mut end = position;
        for range in &batch.ranges {
            assert!(range.start >= end && range.end > range.start, "{batch:?}");
            end = range.end;
        }
        let Some(next) = batch.next else { return };
        assert!(next > position && next >= end, "{batch:?}");
        position = next;
    }
}
