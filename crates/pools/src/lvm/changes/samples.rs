//! Whether a device holds anything but zeroes, by looking at parts of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PARTS: u64 = 64;
const PART: u64 = 256 << 10;

/// At its beginning, its end, and places that lie evenly between them.
pub(super) fn holds_other_than_zeroes(device: &Path, bytes: u64) -> io::Result<bool> {
    let file = File::open(device)?;
    let last = bytes.saturating_sub(PART);
    let mut part = vec![0; usize::try_from(PART.min(bytes)).unwrap_or_default()];
    for number in 0..PARTS {
        let at = u128::from(last) * u128::from(number) / u128::from(PARTS - 1);
        file.read_exact_at(&mut part, u64::try_from(at).unwrap_or(last))?;
        if part.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
