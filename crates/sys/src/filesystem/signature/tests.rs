#![allow(clippy::unwrap_used)]

use super::super::{Format, format};
use super::*;
use crate::testbed::{Disk, MIB, SMALL, pattern, root, scratch};

fn probe_bytes(length: u64, pieces: &[(u64, &[u8])]) -> Signature {
    let dir = scratch();
    let path = dir.path().join("image");
    let file = File::create(&path).unwrap();
    file.set_len(length).unwrap();
    for (offset, bytes) in pieces {
        file.write_all_at(bytes, *offset).unwrap();
    }
    probe(&path).unwrap()
}

#[test]
fn zeros_of_any_length_are_blank() {
    for length in [512, 4096, 70_000, MIB, 10 * MIB] {
        assert_eq!(probe_bytes(length, &[]), Signature::Blank, "{length}");
    }
}

#[test]
fn a_device_without_a_size_is_not_blank() {
    if !root() {
        return;
    }
    let dir = scratch();
    let empty = dir.path().join("image");
    File::create(&empty).unwrap();
    assert!(probe(&empty).unwrap_err().to_string().contains("it has no size"));
    let disk = Disk::attach(&empty, false);
    assert!(probe(&disk.path()).unwrap_err().to_string().contains("it has no size"));
}

#[test]
fn anything_else_is_foreign() {
    assert_eq!(probe_bytes(4 * MIB, &[(0, &pattern(1, 1 << 20))]), Signature::Foreign);
    assert_eq!(probe_bytes(4 * MIB, &[(0, b"x")]), Signature::Foreign);
    assert_eq!(probe_bytes(4 * MIB, &[(MIB - 1, b"x")]), Signature::Foreign);
    assert_eq!(probe_bytes(4 * MIB, &[(4 * MIB - 1, b"x")]), Signature::Foreign);
    assert_eq!(probe_bytes(100, &[(99, b"x")]), Signature::Foreign);
}

#[test]
fn ext4_magic_alone_is_not_ext4() {
    assert_eq!(probe_bytes(4 * MIB, &[(0x438, &[0x53, 0xEF])]), Signature::Foreign);
}

#[test]
fn two_signatures_at_once_are_foreign() {
    let pieces: [(u64, &[u8]); 2] = [(0, b"XFSB"), (0x10040, b"_BHRfS_M")];
    assert_eq!(probe_bytes(4 * MIB, &pieces), Signature::Foreign);
}

#[test]
fn each_kind_is_recognised_with_its_uuid() {
    if !root() {
        return;
    }
    for kind in FsKind::ALL {
        let dir = scratch();
        let disk = Disk::new(dir.path(), SMALL);
        assert_eq!(probe(&disk.path()).unwrap(), Signature::Blank);
        let uuid = crate::rand::random_bytes().unwrap();
        format(&disk.path(), &Format { kind, uuid, extra_options: &[] }).unwrap();
        let expected = Signature::Filesystem { kind, uuid, needs_check: false };
        assert_eq!(probe(&disk.path()).unwrap(), expected);
        assert_eq!(probe(&disk.image).unwrap(), expected);
    }
}

#[test]
fn recorded_kernel_error_requires_a_check() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::formatted(dir.path(), SMALL, FsKind::Ext4);
    let file = File::options().read(true).write(true).open(disk.path()).unwrap();
    let mut state = [0; 1];
    file.read_exact_at(&mut state, 0x43A).unwrap();
    file.write_all_at(&[state[0] | 2], 0x43A).unwrap();
    let signature = probe(&disk.path()).unwrap();
    assert!(matches!(signature, Signature::Filesystem { needs_check: true, .. }));
}
