use super::*;
use crate::lvm::changes::testbed::{Written, superblock};

/// The block 0 with that in it, and a right checksum.
fn with(mut written: Written, salt: u32, offset: usize, bytes: &[u8]) -> Written {
    written.blocks[0][offset..offset + bytes.len()].copy_from_slice(bytes);
    written.seal(0, salt);
    written
}

fn refusal<T: std::fmt::Debug>(read: Read<T>) -> String {
    read.unwrap_err().to_string()
}

#[test]
fn superblock_is_read() {
    let read = Superblock::read(&mut superblock(), SUPERBLOCK).unwrap();
    let expected = Superblock {
        needs_check: false,
        reserved: Some(7),
        mappings: 5,
        devices: 6,
        chunk_bytes: 64 << 10,
    };
    assert_eq!(read, expected);
    let changed = |offset, bytes: &[u8]| {
        let mut written = with(superblock(), SUPERBLOCK_SALT, offset, bytes);
        Superblock::read(&mut written, SUPERBLOCK)
    };
    assert!(changed(4, &[1]).unwrap().needs_check);
    assert_eq!(changed(56, &[0]).unwrap().reserved, None);
    assert!(refusal(changed(32, &[0])).contains("no superblock"));
    assert!(refusal(changed(40, &[3])).contains("no superblock of a known version"));
    assert!(refusal(changed(360, &[1])).contains("newer kernel"));
    assert!(refusal(changed(336, &[1])).contains("impossible size"));
    assert!(refusal(changed(340, &[16])).contains("impossible size"));
}

#[test]
fn block_that_was_lost_or_is_another_is_refused() {
    let mut torn = superblock();
    torn.blocks[0][4000] ^= 1;
    assert!(refusal(Superblock::read(&mut torn, SUPERBLOCK)).contains("wrong checksum"));
    let mut elsewhere = superblock();
    elsewhere.blocks.insert(0, [0; BLOCK_BYTES]);
    assert!(refusal(Superblock::read(&mut elsewhere, 1)).contains("belongs elsewhere"));
    assert!(refusal(Superblock::read(&mut elsewhere, 2)).contains("beyond its end"));
    // The checksums of a superblock and a node are made in different ways.
    assert!(refusal(Node::<u64>::read(&mut superblock(), 0)).contains("wrong checksum"));
}

#[test]
fn nodes_are_read() {
    let mut written = Written::default();
    let leaf = written.node(true, &[(1, 9 << TIME_BITS | 5), (4, 8 << TIME_BITS)]);
    let internal = written.node(false, &[(1, leaf)]);
    let mut details = 3_u64.to_le_bytes().to_vec();
    details.extend(4_u64.to_le_bytes());
    details.extend(5_u32.to_le_bytes());
    details.extend(6_u32.to_le_bytes());
    let details = written.node_of(true, 126, 24, &[(2, details)]);

    let leaf = Node::read(&mut written, leaf).unwrap();
    assert_eq!(leaf, Node::Leaf(vec![(1, Mapping(9)), (4, Mapping(8))]));
    let read = Node::<Mapping>::read(&mut written, internal).unwrap();
    assert_eq!(read, Node::Internal(vec![(1, 0)]));
    let expected = DeviceDetails { mapped_chunks: 3, birth: Birth { transaction: 4, time: 5 } };
    assert_eq!(Node::read(&mut written, details).unwrap(), Node::Leaf(vec![(2, expected)]));
    assert!(refusal(Node::<Mapping>::read(&mut written, details)).contains("another tree"));
}

#[test]
fn impossible_nodes_are_refused() {
    let node = || {
        let mut written = Written::default();
        written.node(true, &[(1, 1), (2, 2), (3, 3)]);
        written
    };
    let changed =
        |offset, bytes: &[u8]| Node::<u64>::read(&mut with(node(), NODE_SALT, offset, bytes), 0);
    assert!(changed(0, &[]).is_ok());
    assert!(refusal(changed(4, &[3])).contains("no node"));
    assert!(refusal(changed(4, &[0])).contains("no node"));
    assert!(refusal(changed(16, &[0xff; 4])).contains("more entries"));
    assert!(refusal(changed(20, &[255])).contains("more entries"));
    assert!(refusal(changed(20, &[2])).contains("more entries"));
    assert!(refusal(changed(24, &[0])).contains("another tree"));
    assert!(refusal(changed(32, &[2])).contains("wrong order"));
    assert!(refusal(changed(32, &[7])).contains("wrong order"));
}
