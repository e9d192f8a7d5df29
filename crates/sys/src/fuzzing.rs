//! What the kernel, programs, Ceph and the contents of devices say, read from arbitrary bytes.
//! Each function fails where something must hold of every input and does not.

use std::path::Path;

use crate::ceph::directory::{CephDecoder, encode};
use crate::filesystem::btrfs::{self, SUPERBLOCK_BYTES};
use crate::filesystem::ext4::Ext4Superblock;
use crate::filesystem::signature::{Signature, classify};
use crate::loopdev::{LoopDevice, parse_device_number};
use crate::mounts::mountinfo::{self, MountEntry};
use crate::mounts::{FsOption, MountOptions};
use crate::thaw_helper::messages::Message;
use crate::zeroes::is_zero;
use crate::{cgroup_io, rbd_export, tool};

/// As many entries as lines that parse, and each, written as the kernel writes it, is read back as
/// it was.
pub fn mountinfo(input: &[u8]) {
    let entries = mountinfo::parse(input);
    let lines = input.split(|byte| *byte == b'\n').count();
    assert!(entries.len() <= lines, "{} entries of {lines} lines", entries.len());
    for entry in entries {
        let line = as_the_kernel_writes(&entry);
        assert_eq!(mountinfo::parse(&line), [entry], "{}", line.escape_ascii());
    }
    let text = String::from_utf8_lossy(input);
    mountinfo::parse_mountinfo(&text);
}

fn as_the_kernel_writes(entry: &MountEntry) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let list = |options: &[String]| {
        let escaped: Vec<_> = options.iter().map(|one| escaped(one.as_bytes(), b",")).collect();
        escaped.join(&b","[..])
    };
    [
        format!("{} {} {}:{}", entry.id, entry.parent, entry.major, entry.minor).into_bytes(),
        escaped(entry.root.as_os_str().as_bytes(), b""),
        escaped(entry.mount_point.as_os_str().as_bytes(), b""),
        list(&entry.options),
        b"shared:1 master:2 -".to_vec(),
        escaped(entry.fs_type.as_bytes(), b""),
        escaped(entry.source.as_bytes(), b""),
        list(&entry.super_options),
    ]
    .join(&b" "[..])
}

fn escaped(plain: &[u8], also: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        _ if also.contains(byte) => format!("\\{byte:03o}").into_bytes(),
        _ => vec![*byte],
    };
    plain.iter().flat_map(escape).collect()
}

/// The first byte says what the rest is.
pub fn tool_output(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    match kind % 9 {
        0 => complaint(&text),
        1 => drop(rbd_export::clients_in(&text)),
        2 => answer_of_ceph(rest),
        3 => helper_message(rest),
        4 => device_numbers(&text),
        5 => mount_options(&text),
        6 => ext4_superblock(rest),
        7 => btrfs_superblock(rest),
        _ => signature(rest),
    }
}

fn complaint(text: &str) {
    let kept = tool::last_lines(tool::before_usage(text));
    assert!(kept.len() <= tool::KEPT_BYTES && !kept.contains('\n'), "{kept:?}");
}

fn answer_of_ceph(answer: &[u8]) {
    drop(CephDecoder::new(answer).text());
    let Some(pairs) = CephDecoder::new(answer).pairs() else { return };
    let mut again = u32::try_from(pairs.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    for (name, id) in &pairs {
        encode(&mut again, name.as_bytes());
        encode(&mut again, id.as_bytes());
    }
    assert!(answer.starts_with(&again), "{pairs:?}");
}

fn helper_message(bytes: &[u8]) {
    if let Some(message) = Message::decode(bytes) {
        assert_eq!(message.encoded(), bytes);
    }
}

fn device_numbers(text: &str) {
    if let Some((major, minor)) = parse_device_number(text) {
        assert_eq!(parse_device_number(&format!("{major}:{minor}\n")), Some((major, minor)));
    }
    for (major, minor) in cgroup_io::devices_named(text) {
        let line = format!("{major}:{minor} rbps=max wbps=1 riops=max wiops=max\n");
        assert_eq!(cgroup_io::devices_named(&line), [(major, minor)]);
    }
    if let Some(device) = LoopDevice::from_path(Path::new(text)) {
        assert_eq!(device.path(), Path::new(text));
    }
}

/// Read-only is not to be taken back, by whatever options.
fn mount_options(text: &str) {
    use rustix::mount::MountAttrFlags;
    let options: Vec<String> = text.lines().map(str::to_owned).collect();
    let parsed = MountOptions::parse(&options, true);
    assert!(parsed.attributes.contains(MountAttrFlags::MOUNT_ATTR_RDONLY));
    assert_eq!(parsed.filesystem.last(), Some(&FsOption::Flag("ro".to_owned())));
    assert!(parsed.filesystem.len() <= options.len() + 1);
}

fn ext4_superblock(bytes: &[u8]) {
    let mut head = vec![0; 1024];
    head.extend_from_slice(bytes);
    let Some(superblock) = Ext4Superblock::parse(&head) else { return };
    for device_bytes in [0, 1 << 20, 1 << 40, (1 << 40) + 12_345, u64::MAX] {
        // Never more than the device has; spanning it follows from that.
        let usable = superblock.usable_blocks(device_bytes);
        assert!(usable <= device_bytes / 1024, "{usable} blocks in {device_bytes} bytes");
        assert_eq!(superblock.spans(device_bytes), superblock.blocks >= usable);
    }
}

fn btrfs_superblock(bytes: &[u8]) {
    const UUID: [u8; 16] = [7; 16];
    let mut superblock = [0; SUPERBLOCK_BYTES];
    let length = bytes.len().min(SUPERBLOCK_BYTES);
    superblock[..length].copy_from_slice(&bytes[..length]);
    let was = btrfs::fsid(&superblock);
    if btrfs::rename_superblock(&mut superblock, UUID).is_none() {
        return;
    }
    assert_eq!(btrfs::fsid(&superblock), was.map(|_| UUID));
    // Once renamed, again is the same: a crash between two mirrors is put right by repeating.
    let once = superblock;
    btrfs::rename_superblock(&mut superblock, UUID);
    assert_eq!(superblock, once);
}

/// Never blank while a single byte is not zero: mkfs would run.
fn signature(bytes: &[u8]) {
    let found = classify(bytes, || Ok(is_zero(bytes)));
    let is_blank = matches!(found, Ok(Signature::Blank));
    assert_eq!(is_blank, bytes.iter().all(|byte| *byte == 0));
}

#[cfg(test)]
mod tests;
