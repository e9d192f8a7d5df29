//! Metadata in memory, for tests.

use std::collections::{BTreeMap, HashMap};

use orlop_sys::checksum::running_crc32c;

use super::block::{
    BLOCK_BYTES, Block, Blocks, MetadataError, NODE_SALT, Read, SUPERBLOCK, SUPERBLOCK_SALT,
};

/// Trees share their nodes: one that was written before is not written again, as in trees that were copied on write.
#[derive(Default)]
pub(in crate::lvm) struct Written {
    pub(in crate::lvm) blocks: Vec<Block>,
    known: HashMap<Vec<u8>, u64>,
    pub(in crate::lvm) reads: usize,
}

impl Blocks for Written {
    fn read(&mut self, block: u64) -> Read<&Block> {
        self.reads += 1;
        let found = usize::try_from(block).ok().and_then(|block| self.blocks.get(block));
        found.ok_or_else(|| MetadataError::damaged(block, "is beyond its end"))
    }
}

impl Written {
    /// Puts the checksum and the place in.
    pub(in crate::lvm) fn seal(&mut self, at: u64, salt: u32) {
        let block = &mut self.blocks[usize::try_from(at).unwrap()];
        block[8..16].copy_from_slice(&at.to_le_bytes());
        let sum = running_crc32c(&block[4..]) ^ salt;
        block[..4].copy_from_slice(&sum.to_le_bytes());
    }

    pub(in crate::lvm) fn node(&mut self, is_leaf: bool, entries: &[(u64, u64)]) -> u64 {
        let values: Vec<_> =
            entries.iter().map(|(key, value)| (*key, value.to_le_bytes().to_vec())).collect();
        self.node_of(is_leaf, 252, 8, &values)
    }

    pub(in crate::lvm) fn node_of(
        &mut self,
        is_leaf: bool,
        most: u32,
        value_bytes: u32,
        entries: &[(u64, Vec<u8>)],
    ) -> u64 {
        let mut block = [0; BLOCK_BYTES];
        let count = u32::try_from(entries.len()).unwrap();
        let kind = if is_leaf { 2_u32 } else { 1 };
        for (offset, field) in [(4, kind), (16, count), (20, most), (24, value_bytes)] {
            block[offset..offset + 4].copy_from_slice(&field.to_le_bytes());
        }
        let values = 32 + 8 * usize::try_from(most).unwrap();
        for (index, (key, value)) in entries.iter().enumerate() {
            block[32 + 8 * index..][..8].copy_from_slice(&key.to_le_bytes());
            block[values + value.len() * index..][..value.len()].copy_from_slice(value);
        }
        let next = u64::try_from(self.blocks.len()).unwrap();
        let at = *self.known.entry(block.to_vec()).or_insert(next);
        if at == next {
            self.blocks.push(block);
            self.seal(at, NODE_SALT);
        }
        at
    }

    /// A tree of these mappings. Where nodes end depends on keys, so that trees with much in common have nodes in common.
    pub(in crate::lvm) fn tree(&mut self, mappings: &BTreeMap<u64, u64>) -> u64 {
        let mut level: Vec<(u64, u64)> =
            mappings.iter().map(|(key, chunk)| (*key, chunk << 24 | key & 0xff)).collect();
        for height in 0_u64.. {
            let ends =
                |key: u64| (key + (height << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 == 0;
            let mut nodes = Vec::new();
            let mut rest = level.as_slice();
            while !rest.is_empty() {
                // At least two, so that each level has fewer.
                let length = rest.iter().skip(2).position(|(key, _)| ends(*key));
                let length = length.map_or(rest.len(), |more| more + 2).min(12);
                let (node, after) = rest.split_at(length);
                nodes.push((node[0].0, self.node(height == 0, node)));
                rest = after;
            }
            match nodes.as_slice() {
                [] => return self.node(true, &[]),
                [(_, root)] => return *root,
                _ => level = nodes,
            }
        }
        unreachable!("each level has fewer nodes than the one below")
    }
}

/// As a kernel writes it, with chunks of 64 KiB and with metadata reserved in block 7.
pub(in crate::lvm) fn superblock() -> Written {
    let mut written = Written::default();
    let mut block = [0; BLOCK_BYTES];
    for (offset, number) in [(32, 27_022_010_u64), (56, 7), (320, 5), (328, 6)] {
        block[offset..offset + 8].copy_from_slice(&number.to_le_bytes());
    }
    for (offset, number) in [(40, 2_u32), (336, 128), (340, 8)] {
        block[offset..offset + 4].copy_from_slice(&number.to_le_bytes());
    }
    written.blocks.push(block);
    written.seal(SUPERBLOCK, SUPERBLOCK_SALT);
    written
}
