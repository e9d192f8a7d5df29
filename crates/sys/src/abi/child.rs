//! What a child does to itself before it becomes another program.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Signals that a supervisor or a terminal sends to everything it started.
const SENT_TO_ALL: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
const FIRST_INHERITED: libc::c_uint = 3;

/// What is started lives on when signals end its parent's whole group, and keeps nothing open but
/// its standard streams.
pub(crate) fn set_apart(command: &mut Command) {
    // SAFETY: between fork and exec only calls that are async-signal-safe are allowed. These are
    // bare system calls, none takes memory, and the closure captures nothing.
    unsafe { command.pre_exec(leave_group) };
}

/// As [`set_apart`], and what it writes to a pipe that this process read is lost without ending it: it goes on when this
/// process is gone.
pub(crate) fn outlive_parent(command: &mut Command) {
    set_apart(command);
    // SAFETY: as in `set_apart`.
    unsafe { command.pre_exec(|| ignore(libc::SIGPIPE)) };
}

/// What is started has this open as well, under the same number. To be called after all that closes descriptors, and the
/// caller keeps `file` until the child runs.
pub(crate) fn keep_open(command: &mut Command, file: &impl AsFd) {
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: as in `set_apart`; the closure captures a number.
    unsafe { command.pre_exec(move || stay_open(descriptor)) };
}

fn stay_open(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: takes nothing but numbers, and clears a flag in this process alone.
    if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What is started writes no core file if it crashes.
pub(crate) fn without_core(command: &mut Command) {
    // SAFETY: as in `set_apart`.
    unsafe { command.pre_exec(limit_core) };
}

fn limit_core() -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call, which reads it.
    if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What is started leads a session, ends when the thread that starts it does, and keeps nothing open but its standard
/// streams.
pub(crate) fn end_with_parent(command: &mut Command) {
    // Before the fork: a parent that has ended by then cannot be asked any more.
    let parent = rustix::process::getpid();
    // SAFETY: as in `set_apart`; the closure captures a number.
    unsafe { command.pre_exec(move || depend_on(parent)) };
}

fn depend_on(parent: rustix::process::Pid) -> io::Result<()> {
    // SAFETY: both take and give nothing but numbers, and change this process alone, which leads no group yet.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 || libc::setsid() == -1 } {
        return Err(io::Error::last_os_error());
    }
    if rustix::process::getppid() != Some(parent) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    mark_inherited();
    Ok(())
}

fn leave_group() -> io::Result<()> {
    for signal in SENT_TO_ALL {
        ignore(signal)?;
    }
    // SAFETY: takes nothing and changes only this process, which leads no group yet.
    if unsafe { libc::setsid() } == -1 {
        return Err(io::Error::last_os_error());
    }
    mark_inherited();
    Ok(())
}

fn ignore(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: no handler is set; "ignored" also survives exec, so there is no moment in which
    // the signal would kill.
    if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// All that this crate opens is closed by exec anyway; this is for what was inherited, and a
/// kernel before 5.11 does without.
fn mark_inherited() {
    // SAFETY: marks descriptors, closes none, so those that std uses until exec stay open.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_INHERITED,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
}

/// The program sees an empty list of mounts. Where that is not allowed, it sees the list of the machine.
/// Its mount namespace does not keep the mounts at `released`.
pub(crate) fn hide_mounts(command: &mut Command, released: Vec<CString>) {
    // SAFETY: as in `set_apart`; what the closure captures was made before the fork, and is only read.
    unsafe { command.pre_exec(move || empty_mount_list(&released)) };
}

/// In a mount namespace that ends with the program. What is unmounted outside is unmounted in it
/// too, where mounts are shared; elsewhere a mount lasts until the program ends, unless it is released here.
fn empty_mount_list(released: &[CString]) -> io::Result<()> {
    // SAFETY: all strings end with a NUL and outlive the calls, and what is not given is null. Nothing
    // but this process sees the change, since it shares no mounts with others after the second call;
    // so the calls after it are not made if one before them has failed.
    unsafe {
        let none = std::ptr::null();
        let hidden = libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, none.cast())
                == 0
            && libc::mount(
                c"/dev/null".as_ptr(),
                c"/proc/self/mounts".as_ptr(),
                none,
                libc::MS_BIND,
                none.cast(),
            ) == 0;
        if hidden {
            for mount_point in released {
                libc::umount2(mount_point.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW);
            }
        }
    }
    Ok(())
}
