#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use super::super::super::{Format, FsKind, format};
use super::super::format_template;
use super::*;
use crate::file::copy_sparse;
use crate::testbed::{root, scratch};
use crate::tool;

/// Enough groups for superblocks at powers of 3, 5 and 7.
const LARGE: u64 = 8 << 30;
const NEW: [u8; 16] = *b"\x11\x22\x33\x44\x55\x66\x47\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x01";
const NEW_TEXT: &str = "11223344-5566-4788-99aa-bbccddeeff01";
/// When it was last written: its low and its high bytes.
const WRITTEN: [(usize, usize); 2] = [(0x30, 4), (0x274, 1)];

fn sized(path: PathBuf, bytes: u64) -> PathBuf {
    File::create_new(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn opened(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn superblock_at(image: &File, offset: u64) -> [u8; SUPERBLOCK_BYTES] {
    let mut superblock = [0; SUPERBLOCK_BYTES];
    image.read_exact_at(&mut superblock, offset).unwrap();
    superblock
}

fn superblocks(image: &File) -> Vec<u64> {
    let mut head = [0; 2048];
    image.read_exact_at(&mut head, 0).unwrap();
    let primary = Ext4Superblock::parse(&head).unwrap();
    let backups = primary.backups().map(|(_, offset)| offset);
    [SUPERBLOCK].into_iter().chain(backups).collect()
}

/// All data of a sparse image but its superblocks' time of writing, and what that changes.
fn comparable(image: &File) -> Vec<(u64, Vec<u8>)> {
    use rustix::fs::{SeekFrom, seek};
    let superblocks = superblocks(image);
    let mut blocks = Vec::new();
    let mut offset = 0;
    while let Ok(start) = seek(image, SeekFrom::Data(offset)) {
        offset = seek(image, SeekFrom::Hole(start)).unwrap();
        for at in (start / 4096 * 4096..offset).step_by(4096) {
            let mut block = vec![0; 4096];
            image.read_exact_at(&mut block, at).unwrap();
            if let Some(superblock) = superblocks.iter().find(|it| (at..at + 4096).contains(it)) {
                let start = usize::try_from(superblock - at).unwrap();
                for (field, length) in WRITTEN.into_iter().chain([(CHECKSUM, 4)]) {
                    block[start + field..start + field + length].fill(0);
                }
            }
            if block.iter().any(|byte| *byte != 0) {
                blocks.push((at, block));
            }
        }
    }
    blocks
}

#[test]
fn result_matches_tune2fs() {
    if !root() {
        return;
    }
    let dir = scratch();
    let template = sized(dir.path().join("template"), LARGE);
    format_template(&template, FsKind::Ext4).unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| {
        let path = sized(dir.path().join(name), LARGE);
        copy_sparse(&opened(&template), &opened(&path)).unwrap();
        path
    });
    let hash_seed = bytes_at(&superblock_at(&opened(&template), SUPERBLOCK), HASH_SEED).unwrap();
    renew(&opened(&ours), &Ext4Identity { uuid: NEW, hash_seed }).unwrap();
    tool::run("tune2fs", [Path::new("-U"), Path::new(NEW_TEXT), &theirs]).unwrap();

    let superblocks = superblocks(&opened(&ours));
    assert!(superblocks.len() > 8, "{superblocks:?}");
    for offset in superblocks {
        let superblock = superblock_at(&opened(&ours), offset);
        assert_eq!(bytes_at(&superblock, UUID), Some(NEW), "{offset}");
    }
    let (ours, theirs) = (comparable(&opened(&ours)), comparable(&opened(&theirs)));
    assert_eq!(ours.len(), theirs.len());
    for ((at, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        let differs = ours.iter().zip(theirs).position(|(a, b)| a != b);
        assert_eq!(differs, None, "in the block at {at}");
    }
}

#[test]
fn names_are_hashed_differently_in_each_copy() {
    if !root() {
        return;
    }
    let dir = scratch();
    let image = sized(dir.path().join("image"), 64 << 20);
    format_template(&image, FsKind::Ext4).unwrap();
    let image = opened(&image);
    let seed = || bytes_at::<16>(&superblock_at(&image, SUPERBLOCK), HASH_SEED).unwrap();
    let first = seed();
    super::super::renew_identity(&image, FsKind::Ext4, NEW).unwrap();
    assert_ne!(seed(), first);
}

/// What is zero already is not zeroed again after the first mount.
#[test]
fn template_inode_tables_are_marked_zeroed() {
    if !root() {
        return;
    }
    let dir = scratch();
    let image = sized(dir.path().join("image"), 1 << 30);
    format_template(&image, FsKind::Ext4).unwrap();
    let output = tool::run("dumpe2fs", [&image]).unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let groups = output.lines().filter(|line| line.contains(": (Blocks ")).count();
    assert!(groups > 1, "{output}");
    assert_eq!(output.matches("ITABLE_ZEROED").count(), groups, "{output}");
}

/// Its other checksums would be wrong afterwards.
#[test]
fn ext4_without_a_checksum_seed_is_refused() {
    if !root() {
        return;
    }
    let dir = scratch();
    let path = sized(dir.path().join("image"), 64 << 20);
    let without = ["-O", "metadata_csum,^metadata_csum_seed"].map(str::to_owned);
    let plain = Format { kind: FsKind::Ext4, uuid: [7; 16], extra_options: &without };
    format(&path, &plain).unwrap();
    let image = opened(&path);
    let error = renew(&image, &Ext4Identity { uuid: NEW, hash_seed: NEW }).unwrap_err();
    assert!(error.to_string().contains("depend on its UUID"), "{error}");
    assert_eq!(bytes_at(&superblock_at(&image, SUPERBLOCK), UUID), Some([7; 16]));
}
