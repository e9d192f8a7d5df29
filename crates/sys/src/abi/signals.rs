//! Which signals a thread takes.

use rustix::io::{Errno, Result};

/// From now on this thread takes no signal that another thread of the process can take.
pub(crate) fn block_signals() -> Result<()> {
    // SAFETY: a set of signals is plain integers, for which all zeros is a valid value.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes the set, which lives until the call returns.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: reads the set, keeps no pointer to it, and is not asked for the former one.
    let outcome =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
    match outcome {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}
