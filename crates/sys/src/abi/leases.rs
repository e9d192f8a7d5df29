//! Leases on files: the kernel grants one only while the file is not open elsewhere.

use std::os::fd::{AsFd, AsRawFd};

use linux_raw_sys::general::F_SETSIG;
use rustix::io::{Errno, Result};

/// What may not be open elsewhere while the lease lasts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lease {
    /// Nothing that writes.
    Read,
    /// Nothing at all.
    Write,
}

/// `EAGAIN`: the file is open elsewhere. The lease ends with the descriptor, or with another one.
pub(crate) fn take_lease(file: impl AsFd, lease: Lease) -> Result<()> {
    let kind = match lease {
        Lease::Read => libc::F_RDLCK,
        Lease::Write => libc::F_WRLCK,
    };
    // When another process opens the file while the lease lasts, the kernel signals this one, by SIGIO
    // unless another signal is chosen. SIGIO would end it; SIGURG is ignored unless a handler was set.
    set(&file, F_SETSIG.cast_signed(), libc::SIGURG)?;
    set(&file, libc::F_SETLEASE, kind)
}

fn set(file: impl AsFd, command: libc::c_int, argument: libc::c_int) -> Result<()> {
    // SAFETY: both commands that are used take a number, no pointer.
    let answer = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, argument) };
    match answer {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}
