//! /proc/self/mountinfo: `36 35 98:0 /root /mnt rw,noatime shared:1 - ext4 /dev/sda rw`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    pub id: u64,
    pub parent: u64,
    pub major: u32,
    pub minor: u32,
    /// What of the filesystem is mounted: `/`, or the directory or file that was bound.
    pub root: PathBuf,
    pub mount_point: PathBuf,
    /// Options of this mount alone.
    pub options: Vec<String>,
    pub fs_type: String,
    pub source: String,
    /// Options of the filesystem, wherever it is mounted.
    pub super_options: Vec<String>,
}

impl MountEntry {
    /// This mount refuses writes; others of the same filesystem may take them.
    pub fn read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }

    /// The filesystem refuses writes: mounted so, or after an error.
    pub fn superblock_read_only(&self) -> bool {
        // What ext4 says after an error since Linux 6.15, and when it was shut down.
        let refusals = ["ro", "emergency_ro", "shutdown"];
        self.super_options.iter().any(|option| refusals.contains(&option.as_str()))
    }
}

/// Lines that do not parse are skipped: a line we cannot read is a mount we cannot have made.
pub fn parse_mountinfo(text: &str) -> Vec<MountEntry> {
    parse(text.as_bytes())
}

/// Paths are bytes, and the kernel escapes only separators.
pub(crate) fn parse(bytes: &[u8]) -> Vec<MountEntry> {
    bytes.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = path(fields.next()?);
    let mount_point = path(fields.next()?);
    let options = list(fields.next()?);
    // Optional fields, as many as there are, end with a dash.
    fields.by_ref().find(|field| *field == b"-")?;
    Some(MountEntry {
        id,
        parent,
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        root,
        mount_point,
        options,
        fs_type: text(fields.next()?),
        source: text(fields.next()?),
        super_options: list(fields.next()?),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

pub(crate) fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

fn list(field: &[u8]) -> Vec<String> {
    field.split(|byte| *byte == b',').filter(|option| !option.is_empty()).map(text).collect()
}

/// `\040` is a space. A backslash that starts no such number stands for itself.
fn unescape(field: &[u8]) -> Vec<u8> {
    // Nearly all: a machine has thousands of mounts, and each look at them reads all.
    if !field.contains(&b'\\') {
        return field.to_vec();
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        match (first, escaped_byte(after)) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                rest = &after[3..];
            }
            (_, _) => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

fn escaped_byte(after_backslash: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(after_backslash.get(..3)?).ok()?;
    let octal = digits.bytes().all(|digit| digit.is_ascii_digit());
    octal.then(|| u8::from_str_radix(digits, 8).ok()).flatten()
}

#[cfg(test)]
mod tests;
