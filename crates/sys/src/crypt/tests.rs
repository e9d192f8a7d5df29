//! Headers are made in files, which takes neither root nor device-mapper. Mappings need the kernel of tests/guest.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::testbed::{Disk, MIB, root, scratch};

const UUID: &str = "00112233-4455-4677-8899-aabbccddeeff";
const UUID_BYTES: u128 = 0x0011_2233_4455_4677_8899_aabb_ccdd_eeff;
const OFFSET: u64 = 16 * MIB;
const QUICK: KeyDerivation = KeyDerivation::Pbkdf2 { iterations: 1000 };

/// `None`, with a line that says why, where cryptsetup is missing.
fn image() -> Option<(TempDir, PathBuf)> {
    if tool::find(CRYPTSETUP).is_none() {
        eprintln!("skipped: cryptsetup is not installed");
        return None;
    }
    let directory = scratch();
    let path = directory.path().join("image");
    File::create_new(&path).unwrap().set_len(20 * MIB).unwrap();
    Some((directory, path))
}

fn formatted(key: &[u8]) -> Option<(TempDir, PathBuf)> {
    let (directory, path) = image()?;
    format(&path, UUID, OFFSET, key, QUICK).unwrap();
    Some((directory, path))
}

fn opens(path: &Path, key: &[u8]) -> bool {
    check_key(path, key).unwrap() == Unlocked::Yes
}

fn seen(path: &Path) -> HeaderAndData {
    header_and_data(path, OFFSET).unwrap()
}

#[test]
fn header_has_the_uuid_and_the_key_and_no_data_behind_it() {
    let Some((_directory, path)) = image() else { return };
    assert_eq!(seen(&path), HeaderAndData { header: Header::Blank, has_data: false });
    // A newline at the end belongs to the key.
    for (key, other) in [(&b"with\n"[..], &b"with"[..]), (&[0, 255, 10], &[0, 255])] {
        format(&path, UUID, OFFSET, key, QUICK).unwrap();
        let uuid = UUID_BYTES.to_be_bytes();
        assert_eq!(seen(&path), HeaderAndData { header: Header::Luks2 { uuid }, has_data: false });
        assert!(opens(&path, key) && !opens(&path, other));
    }
}

#[test]
fn data_begin_where_they_were_to_begin() {
    let Some((_directory, path)) = formatted(b"key") else { return };
    let write = |offset| {
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"x", offset).unwrap();
    };
    write(OFFSET - 1);
    assert!(!seen(&path).has_data);
    write(OFFSET);
    assert!(seen(&path).has_data);
    let dump = tool::run(CRYPTSETUP, ["luksDump".as_ref(), path.as_os_str()]).unwrap();
    let dump = String::from_utf8(dump.stdout).unwrap();
    for expected in ["offset: 16777216 [bytes]", "sector: 4096 [bytes]", "cipher: aes-xts-plain64"]
    {
        assert!(dump.contains(expected), "{expected} is missing from:\n{dump}");
    }
}

#[test]
fn end_of_the_device_is_data_too() {
    let Some((_directory, path)) = image() else { return };
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"x", 20 * MIB - 1).unwrap();
    assert_eq!(seen(&path), HeaderAndData { header: Header::Blank, has_data: true });
    file.write_all_at(b"x", 5000).unwrap();
    assert_eq!(seen(&path).header, Header::Foreign);
    file.set_len(OFFSET).unwrap();
    assert!(header_and_data(&path, OFFSET).unwrap_err().is_refusal());
}

#[test]
fn argon2id_takes_the_memory_that_it_is_given() {
    let Some((_directory, path)) = image() else { return };
    let derivation = KeyDerivation::Argon2id { memory_kib: 1 << 10, iterations: 4 };
    format(&path, UUID, OFFSET, b"key", derivation).unwrap();
    assert!(opens(&path, b"key"));
    let dump = tool::run(CRYPTSETUP, ["luksDump".as_ref(), path.as_os_str()]).unwrap();
    let dump = String::from_utf8(dump.stdout).unwrap();
    let fields = ["PBKDF:      argon2id", "Time cost:  4", "Memory:     1024", "Threads:    1"];
    for expected in fields {
        assert!(dump.contains(expected), "{expected} is missing from:\n{dump}");
    }
}

#[test]
fn keys_are_added_and_removed_one_by_one() {
    let Some((_directory, path)) = formatted(b"first") else { return };
    assert_eq!(add_key(&path, b"wrong", b"second", QUICK).unwrap(), Unlocked::WrongKey);
    assert_eq!(add_key(&path, b"first", b"second", QUICK).unwrap(), Unlocked::Yes);
    assert!(opens(&path, b"first") && opens(&path, b"second"));
    assert_eq!(remove_key(&path, b"first").unwrap(), Unlocked::Yes);
    assert_eq!(remove_key(&path, b"first").unwrap(), Unlocked::WrongKey);
    assert!(!opens(&path, b"first") && opens(&path, b"second"));
}

#[test]
fn what_is_no_device_is_an_error_and_not_a_wrong_key() {
    let Some((directory, path)) = image() else { return };
    for path in [path, directory.path().join("missing")] {
        let refused = check_key(&path, b"key").unwrap_err().to_string();
        assert!(!refused.contains("key slot"), "{refused}");
    }
}

#[test]
fn machine_without_device_mapper_is_known() {
    let missing = device_mapper::missing();
    let has_it = std::fs::read_to_string("/proc/misc").unwrap().contains("device-mapper");
    assert_eq!(missing.is_none(), has_it, "{missing:?}");
    assert!(has_it || std::env::var_os("ORLOP_TEST_DISK").is_none(), "the guest has it");
}

/// `None`, with a line that says why, where mappings cannot be made.
fn disk(bytes: u64) -> Option<(TempDir, Disk)> {
    if !root() {
        return None;
    }
    if let Some(why) = missing() {
        eprintln!("skipped: {why}; `tests/guest/run` has it");
        return None;
    }
    let directory = scratch();
    let disk = Disk::new(directory.path(), bytes);
    format(&disk.path(), UUID, OFFSET, b"key", QUICK).unwrap();
    Some((directory, disk))
}

fn mapping_of(disk: &Disk) -> Option<MappedDevice> {
    let (major, minor) = disk.device.device_number().unwrap();
    let mut above = device_mapper::above(major, minor).unwrap();
    assert!(above.len() <= 1);
    above.pop()
}

#[test]
fn mapping_is_found_on_its_device_grows_without_a_key_and_closes() {
    let Some((_directory, disk)) = disk(64 * MIB) else { return };
    let name = format!("orlop-test-{}", std::process::id());
    let wanted = Mapping { name: &name, read_only: false, discard: true };
    assert_eq!(open(&disk.path(), &wanted, b"wrong").unwrap(), Unlocked::WrongKey);
    assert!(mapping_of(&disk).is_none());
    assert_eq!(open(&disk.path(), &wanted, b"key").unwrap(), Unlocked::Yes);
    let mapping = mapping_of(&disk).unwrap();
    assert_eq!((mapping.name.as_str(), mapping.is_read_only), (name.as_str(), false));
    let below = device_mapper::below(mapping.major, mapping.minor).unwrap();
    assert_eq!(below, [disk.device.device_number().unwrap()]);
    assert_eq!(device_mapper::path_of(below[0].0, below[0].1).unwrap(), disk.path());
    let size = || crate::loopdev::size(&mapping.path()).unwrap();
    assert_eq!(size(), 48 * MIB);
    disk.grow(80 * MIB);
    grow(&mapping).unwrap();
    assert_eq!(size(), 64 * MIB);

    let held = File::open(mapping.path()).unwrap();
    assert!(close(&mapping).unwrap_err().is_busy());
    drop(held);
    close(&mapping).unwrap();
    assert!(mapping_of(&disk).is_none());
}

#[test]
fn read_only_mapping_refuses_writes_and_data_are_encrypted() {
    let Some((_directory, disk)) = disk(64 * MIB) else { return };
    let name = format!("orlop-test-{}-ro", std::process::id());
    let writer = Mapping { name: &name, read_only: false, discard: false };
    assert_eq!(open(&disk.path(), &writer, b"key").unwrap(), Unlocked::Yes);
    let mapping = mapping_of(&disk).unwrap();
    let file = File::options().write(true).open(mapping.path()).unwrap();
    file.write_all_at(&[0x5a; 8192], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    close(&mapping).unwrap();
    assert!(seen(&disk.path()).has_data);
    let mut raw = [0; 8192];
    File::open(&disk.image).unwrap().read_exact_at(&mut raw, OFFSET).unwrap();
    assert!(!raw.windows(16).any(|window| window == [0x5a; 16]));

    let reader = Mapping { name: &name, read_only: true, discard: false };
    assert_eq!(open(&disk.path(), &reader, b"key").unwrap(), Unlocked::Yes);
    let mapping = mapping_of(&disk).unwrap();
    assert!(mapping.is_read_only);
    let mut plain = [0; 8192];
    File::open(mapping.path()).unwrap().read_exact_at(&mut plain, 0).unwrap();
    assert_eq!(plain, [0x5a; 8192]);
    let write = File::options().write(true).open(mapping.path());
    assert!(write.and_then(|file| file.write_all_at(b"x", 0)).is_err());
    close(&mapping).unwrap();
}
