//! Pages of a file in memory.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

/// Writes out all pages of a file that are not on the device yet, and waits for them.
pub(crate) fn write_out_pages(file: impl AsFd) -> Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: numbers only; the descriptor is open for as long as `file` is borrowed.
    match unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, all) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
