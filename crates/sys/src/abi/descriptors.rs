//! A thread's own table of open files.

use rustix::io::{Errno, Result};

const AFTER_STANDARD_STREAMS: libc::c_uint = 3;

/// From now on this thread has a table of open files that no other thread shares, with nothing in it
/// but the standard streams. Linux 5.9. For a thread that has just begun: what it was given is closed.
pub(crate) fn leave_shared_table() -> Result<()> {
    // SAFETY: takes three numbers. The table of the other threads stays as it is; in that of this
    // thread only numbers are closed that nothing in it owns.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            AFTER_STANDARD_STREAMS,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS)
}
