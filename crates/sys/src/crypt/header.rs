//! What stands at the start of an encrypted device, without cryptsetup.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::error::{Context, Error, Result};
use crate::zeroes::is_zero;

const MAGIC: &[u8] = b"LUKS\xba\xbe\0\x02";
/// As text, ended by zeroes.
const UUID: std::ops::Range<usize> = 168..208;
/// How much of the header, and of the data behind it, is compared with zeroes.
const HEAD: u64 = 1 << 20;
const TAIL: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Nothing but zeroes.
    Blank,
    Luks2 {
        uuid: [u8; 16],
    },
    Foreign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderAndData {
    pub header: Header,
    /// The first MiB of data or the last 64 KiB are not only zeroes. What was written through a mapping hardly ever is.
    pub has_data: bool,
}

/// Looks at a device whose data begin after `data_offset` bytes.
pub fn header_and_data(device: &Path, data_offset: u64) -> Result<HeaderAndData> {
    let mut file = File::open(device).on("open", device)?;
    let length = file.seek(SeekFrom::End(0)).on("read the size of", device)?;
    if length <= data_offset {
        return Err(Error::refused("read", device, "it is too small; was it detached?"));
    }
    // A mapping writes past this cache.
    fadvise(&file, 0, None, Advice::DontNeed).on("drop the cache of", device)?;
    let read = || -> std::io::Result<HeaderAndData> {
        let head = range(&file, 0, HEAD.min(length))?;
        let data = range(&file, data_offset, HEAD.min(length - data_offset))?;
        let tail_start = length.saturating_sub(TAIL).max(data_offset);
        let tail = range(&file, tail_start, length - tail_start)?;
        let has_data = !is_zero(&data) || !is_zero(&tail);
        Ok(HeaderAndData { header: classify(&head), has_data })
    };
    read().on("read", device)
}

fn classify(head: &[u8]) -> Header {
    if is_zero(head) {
        return Header::Blank;
    }
    match uuid_of(head) {
        Some(uuid) => Header::Luks2 { uuid },
        None => Header::Foreign,
    }
}

fn uuid_of(head: &[u8]) -> Option<[u8; 16]> {
    head.strip_prefix(MAGIC)?;
    let text = head.get(UUID)?.split(|byte| *byte == 0).next()?;
    let digits: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let number = u128::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?;
    Some(number.to_be_bytes())
}

fn range(file: &File, offset: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(std::io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
