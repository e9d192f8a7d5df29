//! Which signals a thread takes.

use rustix::io::{Errno, Result};

/// As for a process that is started from a shell: nothing is blocked, and the end of a child is kept
/// until it is asked for. But a file that would exceed the limit of this process (RLIMIT_FSIZE) is an error of
/// that call, and not the end of the process. Threads and programs that are started have the same.
pub(crate) fn take_signals() -> Result<()> {
    // SAFETY: a set of signals is plain integers, for which all zeros is a valid value.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes the set, which lives until the call returns.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: reads the set, keeps no pointer to it, and is not asked for the former one.
    let outcome =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
    if outcome != 0 {
        return Err(Errno::from_raw_os_error(outcome));
    }
    // SAFETY: sets no handler of this process.
    if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(Errno::INVAL);
    }
    // SAFETY: sets no handler of this process.
    if unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(Errno::INVAL);
    }
    Ok(())
}

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
