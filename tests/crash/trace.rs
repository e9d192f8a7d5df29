//! What the kernel was really asked for: every call that changes something, as strace saw it, and
//! whether a crash point follows it.
//!
//! Calls are known by what is harmless, not by what is not: one that nobody thought of counts as
//! an effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// Calls that look, wait, or change nothing but this process. strace does not even show them.
const HARMLESS: &[&str] = &[
    // Memory, threads, signals, time.
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "membarrier",
    "futex",
    "rseq",
    "set_robust_list",
    "set_tid_address",
    "arch_prctl",
    "prctl",
    "prlimit64",
    "exit",
    "exit_group",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "restart_syscall",
    "sched_yield",
    "sched_getaffinity",
    "clock_gettime",
    "clock_nanosleep",
    "nanosleep",
    "getrandom",
    "getpid",
    "gettid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getcwd",
    "uname",
    "sysinfo",
    "umask",
    "tgkill",
    "wait4",
    "waitid",
    "pidfd_open",
    "pidfd_send_signal",
    "kill",
    // Descriptors, sockets, events.
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "flock",
    "pipe2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "eventfd2",
    "timerfd_create",
    "timerfd_settime",
    "socket",
    "socketpair",
    "connect",
    "listen",
    "accept",
    "accept4",
    "shutdown",
    "getsockname",
    "getpeername",
    "getsockopt",
    "setsockopt",
    "sendto",
    "sendmsg",
    "recvfrom",
    "recvmsg",
    "execve",
    // Files, looked at.
    "read",
    "readv",
    "pread64",
    "preadv",
    "preadv2",
    "lseek",
    "stat",
    "fstat",
    "lstat",
    "newfstatat",
    "statx",
    "statfs",
    "fstatfs",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "getdents64",
    "getxattr",
    "lgetxattr",
    "fgetxattr",
    "fadvise64",
    "readahead",
    // A context for a mount, gone with its descriptor.
    "fsopen",
    "fspick",
];

/// strace has no name for it.
const XFS_GEOMETRY: &str = "_IOC(_IOC_READ, 0x58, 0x64, 0x70)";

/// Of ioctl.
const HARMLESS_REQUESTS: &[&str] = &[
    "TCGETS",
    "FIONBIO",
    "FIONREAD",
    "FIOCLEX",
    "LOOP_GET_STATUS64",
    "LOOP_CTL_GET_FREE",
    "BLKGETSIZE64",
    "BLKSSZGET",
    "FS_IOC_FIEMAP",
    "FS_IOC_GETFLAGS",
    XFS_GEOMETRY,
    "BTRFS_IOC_FS_INFO",
    "BTRFS_IOC_DEV_INFO",
];

/// Nobody's state: streams, the log, the socket that each start puts in place of the one that it
/// finds, and what crash points write themselves.
const HARMLESS_FILES: &[&str] =
    &["<socket:", "<anon_inode:", "/dev/null>", "/daemon.log>", "/csi.sock\"", "/crash/"];

/// strace before a command; what it sees is added to a file.
pub(crate) struct Trace {
    file: PathBuf,
}

const STRACE: &str = "/usr/bin/strace";

impl Trace {
    pub(crate) fn to(file: PathBuf) -> Self {
        assert!(Path::new(STRACE).is_file(), "strace is not installed; see scripts/prerequisites");
        Self { file }
    }

    pub(crate) fn words(&self) -> Vec<String> {
        let harmless = format!("trace=!{}", HARMLESS.join(","));
        // -D: the command stays a child of whoever starts it.
        let file = self.file.to_str().expect("paths of tests are text");
        let how = ["-D", "-f", "--seccomp-bpf", "-q", "-y", "-s", "256", "-A", "-o", file];
        let what = ["-e", &harmless, "-e", "signal=none"];
        let words = [STRACE].into_iter().chain(how).chain(what);
        words.map(str::to_owned).collect()
    }

    /// Waits until strace has written the end of a process.
    pub(crate) fn wait_for_end_of(&self, process: u32) {
        let end = format!("{process} +++ ");
        let deadline = Instant::now() + PATIENCE;
        while !self.text().lines().any(|line| unpadded(line).starts_with(&end)) {
            assert!(Instant::now() < deadline, "strace does not see the end of {process}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.file).unwrap_or_default()).into_owned()
    }

    pub(crate) fn findings(&self, daemons: &BTreeSet<u32>) -> Findings {
        Findings::of(&self.text(), daemons)
    }
}

/// strace pads the number of a process with blanks.
fn unpadded(line: &str) -> String {
    let (process, rest) = line.split_once(' ').unwrap_or((line, ""));
    format!("{process} {}", rest.trim_start())
}

#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// How many effects each kind of call had.
    pub(crate) effects: BTreeMap<String, usize>,
    /// Calls that had an effect without a crash point after it, and where they were.
    pub(crate) without_point: Vec<String>,
}

/// One thread of the daemon.
#[derive(Default)]
struct Thread {
    /// A call whose return is in another line.
    unfinished: String,
    /// An effect that no point has followed yet.
    pending: Option<String>,
    last_point: String,
}

impl Findings {
    fn of(text: &str, daemons: &BTreeSet<u32>) -> Self {
        let lines: Vec<_> = text.lines().filter_map(parse).collect();
        let ours = threads_of(&lines, daemons);
        let mut threads: BTreeMap<u32, Thread> = BTreeMap::new();
        let mut findings = Self::default();
        for (process, event) in lines.into_iter().filter(|(process, _)| ours.contains(process)) {
            let thread = threads.entry(process).or_default();
            if event.starts_with("+++") {
                // Killed after an effect, at its point: the point's note may be cut off.
                threads.remove(&process);
                continue;
            }
            if let Some(call) = thread.complete(event) {
                findings.take(thread, &call);
            }
        }
        let left = threads.into_values().filter_map(|thread| thread.pending);
        findings.without_point.extend(left);
        findings
    }

    fn take(&mut self, thread: &mut Thread, call: &str) {
        if let Some(point) = point_in(call) {
            thread.pending = None;
            point.clone_into(&mut thread.last_point);
        }
        let Some(name) = effect_of(call) else { return };
        *self.effects.entry(name.to_owned()).or_default() += 1;
        let place = format!("{call}\n    after the point: {}", thread.last_point);
        self.without_point.extend(thread.pending.replace(place));
    }
}

/// A line is "PROCESS EVENT".
fn parse(line: &str) -> Option<(u32, &str)> {
    let (process, event) = line.split_once(' ')?;
    Some((process.parse().ok()?, event.trim_start()))
}

/// The daemons' threads, without the programs that they start: those are not killed with them.
fn threads_of(lines: &[(u32, &str)], daemons: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut ours = daemons.clone();
    for (process, event) in lines {
        let is_return = event.starts_with("clone") || event.starts_with("<... clone");
        let makes_thread = event.contains("CLONE_THREAD") || event.contains("parent_tid=");
        let child = event.rsplit_once(" = ").and_then(|(_, value)| value.trim().parse().ok());
        if let (true, true, Some(child)) = (is_return, makes_thread, child)
            && ours.contains(process)
        {
            ours.insert(child);
        }
    }
    ours
}

impl Thread {
    /// The whole call, once it has returned.
    fn complete(&mut self, event: &str) -> Option<String> {
        if let Some(begun) = event.strip_suffix("<unfinished ...>") {
            self.unfinished = begun.to_owned();
            return None;
        }
        let Some(resumed) = event.strip_prefix("<... ") else { return Some(event.to_owned()) };
        let (_, rest) = resumed.split_once("resumed>")?;
        Some(std::mem::take(&mut self.unfinished) + rest)
    }
}

/// The place that a crash point wrote of itself.
fn point_in(call: &str) -> Option<&str> {
    let (file, text) = call.strip_prefix("write(")?.split_once('"')?;
    let (place, _) = text.split_once("\\n").filter(|_| file.contains("/effects>"))?;
    Some(place)
}

/// The name of the call, if it changed something.
fn effect_of(call: &str) -> Option<&str> {
    let (name, rest) = call.split_once('(')?;
    let (arguments, answer) = rest.rsplit_once(" = ")?;
    if answer.starts_with(['-', '?']) || HARMLESS.contains(&name) {
        return None;
    }
    if HARMLESS_FILES.iter().any(|file| arguments.contains(file)) {
        return None;
    }
    let has = |flags: &[&str]| flags.iter().any(|flag| arguments.contains(flag));
    let harmless = match name {
        "open" | "openat" | "openat2" => !has(&["O_CREAT", "O_TRUNC", "O_TMPFILE"]),
        "ioctl" => has(HARMLESS_REQUESTS),
        "fsconfig" => !has(&["FSCONFIG_CMD_CREATE"]),
        "clone" | "clone3" => has(&["CLONE_THREAD", "parent_tid="]),
        _ => false,
    };
    (!harmless).then_some(name)
}
