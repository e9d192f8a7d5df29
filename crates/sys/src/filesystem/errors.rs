//! Errors that mounted filesystems count themselves.

use std::path::Path;

use crate::error::{Context, Result};

/// Of the filesystem that is mounted from this device: what ext4 found wrong since its last check,
/// what the device of btrfs failed to read, write or keep. XFS counts none: it stops at the first one
/// that matters, and then every access to it fails.
pub fn errors_on(device: &Path) -> Result<u64> {
    let Some(name) = device.file_name() else { return Ok(0) };
    let ext4 = Path::new("/sys/fs/ext4").join(name).join("errors_count");
    if let Ok(count) = std::fs::read_to_string(ext4) {
        return Ok(count.trim_end().parse().unwrap_or(0));
    }
    let all = Path::new("/sys/fs/btrfs");
    // No such directory: the kernel has no btrfs.
    let Ok(entries) = std::fs::read_dir(all) else { return Ok(0) };
    for entry in entries {
        let filesystem = entry.on("list the filesystems in", all)?.path();
        if filesystem.join("devices").join(name).exists() {
            return Ok(errors_of_btrfs(&filesystem.join("devinfo")));
        }
    }
    Ok(0)
}

/// The errors of its one device; reported by Linux 5.14 and later.
fn errors_of_btrfs(devices: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(devices) else { return 0 };
    let stats = entries
        .flatten()
        .map(|entry| std::fs::read_to_string(entry.path().join("error_stats")).unwrap_or_default());
    stats.map(|text| sum_of_counts(&text)).sum()
}

fn sum_of_counts(stats: &str) -> u64 {
    let counts = stats.lines().filter_map(|line| line.split_ascii_whitespace().nth(1));
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_btrfs_error_counters_are_summed() {
        assert_eq!(sum_of_counts("write_errs 0\nread_errs 0\n"), 0);
        assert_eq!(sum_of_counts("write_errs 3\nread_errs 0\nflush_errs 1\n"), 4);
        assert_eq!(sum_of_counts("invalid\n"), 0);
    }
}
