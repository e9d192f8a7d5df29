//! What the kernel counts of a block device; it does so for any.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Context, Error, Result};

/// Sysfs counts in these, whatever the device's own are.
const SECTOR: u64 = 512;

/// Since the device was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    pub reads: u64,
    pub bytes_read: u64,
    pub read_time: Duration,
    pub writes: u64,
    pub bytes_written: u64,
    pub write_time: Duration,
    pub in_flight: u64,
    /// For how long there was anything under way.
    pub busy_time: Duration,
}

/// Differs with each file or image that the number is attached to. Linux 5.15; `None` before.
pub fn sequence_of(major: u32, minor: u32) -> Option<u64> {
    let path = format!("/sys/dev/block/{major}:{minor}/diskseq");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

pub fn statistics(major: u32, minor: u32) -> Result<Statistics> {
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    let numbers = numbers_in(&path)?;
    let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
    // Times are in milliseconds.
    let time = |index| Duration::from_millis(number(index));
    Ok(Statistics {
        reads: number(0),
        bytes_read: number(2).saturating_mul(SECTOR),
        read_time: time(3),
        writes: number(4),
        bytes_written: number(6).saturating_mul(SECTOR),
        write_time: time(7),
        in_flight: number(8),
        busy_time: time(9),
    })
}

/// How many writes, discards and flushes any block device has finished; `None` while a write is
/// under way.
pub fn writes(major: u32, minor: u32) -> Result<Option<u64>> {
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // "READS WRITES"; looked at before the count, so that a write which ends in between shows.
    let under_way = numbers_in(&device.join("inflight"))?;
    if under_way.get(1).is_none_or(|writes| *writes > 0) {
        return Ok(None);
    }
    // The kernel's block/stat: writes, discards (4.18), flushes (5.5), counted from 0.
    let finished = numbers_in(&device.join("stat"))?;
    Ok(Some([4, 11, 15].iter().filter_map(|index| finished.get(*index)).sum()))
}

pub(super) fn numbers_in(path: &Path) -> Result<Vec<u64>> {
    let text = std::fs::read_to_string(path).on("read", path)?;
    let numbers = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>();
    numbers.ok_or_else(|| Error::refused("read", path, "it does not hold a device's statistics"))
}
