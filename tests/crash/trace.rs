//! What the kernel was really asked for: every call that changes something, as strace saw it, and
//! whether a crash point follows it.
//!
//! Harmless calls are listed, not harmful ones: a call that is not in the list counts as
//! an effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Calls that look, wait, or change nothing but this process. strace does not even show them, but for
/// [`EXECUTE`].
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
    "inotify_init1",
    "inotify_add_watch",
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
    EXECUTE,
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

/// Tells a program from a thread.
const EXECUTE: &str = "execve";

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
    "FS_IOC_GETFLAGS",
    XFS_GEOMETRY,
    "BTRFS_IOC_FS_INFO",
    "BTRFS_IOC_DEV_INFO",
];

/// No durable state: streams, the log, the socket that each start puts in place of the one that it
/// finds, and what crash points write themselves. Trial files have no name and go with their
/// descriptor; one is written now and then to see whether the pool answers.
const HARMLESS_FILES: &[&str] = &[
    "<socket:",
    "<anon_inode:",
    "/dev/null>",
    "/daemon.log>",
    "/csi.sock\"",
    "/crash/",
    "/staging/#",
];

/// strace before a command; what it sees of each thread is added to a separate file. A daemon that
/// was killed may leave a program behind, which its strace follows while the next one writes too:
/// in one file, lines of both would end up in each other.
pub(crate) struct Trace {
    /// With the number of the thread as its extension.
    file: PathBuf,
}

const STRACE: &str = "/usr/bin/strace";
impl Trace {
    pub(crate) fn to(file: PathBuf) -> Self {
        assert!(Path::new(STRACE).is_file(), "strace is not installed; see scripts/prerequisites");
        Self { file }
    }

    pub(crate) fn words(&self) -> Vec<String> {
        let hidden: Vec<_> = HARMLESS.iter().filter(|name| **name != EXECUTE).copied().collect();
        let harmless = format!("trace=!{}", hidden.join(","));
        // -D: the command stays a child of the process that starts it.
        let file = self.file.to_str().expect("paths of tests are text");
        let how = ["-D", "-ff", "--seccomp-bpf", "-q", "-y", "-s", "256", "-A", "-o", file];
        let what = ["-e", &harmless, "-e", "signal=none"];
        let words = [STRACE].into_iter().chain(how).chain(what);
        words.map(str::to_owned).collect()
    }

    /// Waits until strace has written the end of a process that ended by itself.
    pub(crate) fn wait_for_end_of(&self, process: u32) {
        let deadline = Instant::now() + TIMEOUT;
        let has_ended = |text: &String| text.lines().any(is_end);
        while !self.texts().get(&process).is_some_and(has_ended) {
            assert!(Instant::now() < deadline, "strace does not see the end of {process}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn findings(&self, daemons: &BTreeSet<u32>) -> Findings {
        let texts = self.texts();
        let mut threads = threads_of(&texts, daemons);
        for number in used_otherwise(&texts, &threads) {
            threads.remove(&number);
        }
        Findings::of(&texts, &threads)
    }

    fn texts(&self) -> Texts {
        let directory = self.file.parent().expect("a directory around the trace");
        let entries = fs::read_dir(directory).expect("list the traces");
        let paths = entries.map(|entry| entry.expect("list the traces").path());
        let ours = paths.filter(|path| path.file_stem() == self.file.file_stem());
        let read = |path: PathBuf| {
            let thread = path.extension()?.to_str()?.parse().ok()?;
            let bytes = fs::read(&path).expect("read a trace");
            Some((thread, String::from_utf8_lossy(&bytes).into_owned()))
        };
        ours.filter_map(read).collect()
    }
}

/// Of a thread that was not killed.
fn is_end(line: &str) -> bool {
    line.starts_with("+++ ")
}

/// What was seen of each thread, by its number.
type Texts = BTreeMap<u32, String>;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// How many effects each kind of call had.
    pub(crate) effects: BTreeMap<String, usize>,
    /// Calls that had an effect without a crash point after it, one of each kind and place.
    pub(crate) without_point: BTreeMap<Place, String>,
}

/// The name of a call, and the crash point before it.
pub(crate) type Place = (String, String);

/// One thread of the daemon.
#[derive(Default)]
struct Thread {
    /// An effect that no point has followed yet.
    pending: Option<(Place, String)>,
    last_point: String,
}

impl Findings {
    fn of(texts: &Texts, ours: &BTreeSet<u32>) -> Self {
        let mut findings = Self::default();
        for text in ours.iter().filter_map(|thread| texts.get(thread)) {
            for life in lives(text).filter(|life| !is_of_program(life)) {
                // What is pending in the end counts for nothing: killed after an effect, at its point,
                // the point's note may be cut off.
                let mut thread = Thread::default();
                life.iter().for_each(|line| findings.take(&mut thread, line));
            }
        }
        findings
    }

    fn take(&mut self, thread: &mut Thread, call: &str) {
        if let Some(point) = point_in(call) {
            thread.pending = None;
            point.clone_into(&mut thread.last_point);
        }
        let Some(name) = effect_of(call) else { return };
        *self.effects.entry(name.to_owned()).or_default() += 1;
        let place = (name.to_owned(), thread.last_point.clone());
        self.without_point.extend(thread.pending.replace((place, call.to_owned())));
    }
}

/// Another thread may get the same number, and so may a program.
fn lives(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines: Vec<_> = text.lines().collect();
    let lives: Vec<_> = lines.split(|line| is_end(line)).map(<[_]>::to_vec).collect();
    lives.into_iter()
}

fn is_of_program(life: &[&str]) -> bool {
    life.iter().copied().any(is_program)
}

/// That the daemon started: mkfs, or its helper by way of /proc/self/exe.
fn is_program(call: &str) -> bool {
    let executed = call.strip_prefix(EXECUTE).and_then(|call| call.strip_prefix("(\""));
    let program =
        executed.filter(|_| call.ends_with(" = 0")).and_then(|call| call.split('"').next());
    program.is_some_and(|program| !program.ends_with("/orlop"))
}

/// The daemons' threads, without the programs that they start: those are not killed with them.
fn threads_of(texts: &Texts, daemons: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut ours = BTreeSet::new();
    let mut found: Vec<u32> = daemons.iter().copied().collect();
    while let Some(thread) = found.pop() {
        if ours.insert(thread) {
            let lives = texts.get(&thread).into_iter().flat_map(|text| lives(text));
            let calls = lives.filter(|life| !is_of_program(life)).flatten();
            found.extend(calls.filter_map(thread_made_by));
        }
    }
    ours
}

/// Numbers that programs, or threads of programs, had as well: what is in their files may be of either.
/// A program itself may have had the number of one of our threads.
fn used_otherwise(texts: &Texts, ours: &BTreeSet<u32>) -> BTreeSet<u32> {
    let lives = texts.iter().flat_map(|(by, text)| lives(text).map(move |life| (by, life)));
    let calls = lives.flat_map(|(by, life)| {
        let ours = ours.contains(by) && !is_of_program(&life);
        life.into_iter().filter(move |call| !(ours && makes_thread(call)))
    });
    calls.filter_map(made_by).collect()
}

fn thread_made_by(call: &str) -> Option<u32> {
    made_by(call).filter(|_| makes_thread(call))
}

fn makes_thread(call: &str) -> bool {
    call.contains("CLONE_THREAD") || call.contains("parent_tid=")
}

fn made_by(call: &str) -> Option<u32> {
    let makes = ["clone", "fork(", "vfork("].iter().any(|name| call.starts_with(name));
    let (_, answer) = call.rsplit_once(" = ").filter(|_| makes)?;
    answer.trim().parse().ok()
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
        "open" | "openat" | "openat2" => !has(&["O_CREAT", "O_TRUNC"]),
        "ioctl" => has(HARMLESS_REQUESTS),
        "fsconfig" => !has(&["FSCONFIG_CMD_CREATE"]),
        "clone" | "clone3" => has(&["CLONE_THREAD", "parent_tid="]),
        _ => false,
    };
    (!harmless).then_some(name)
}

#[test]
fn a_program_with_the_number_of_a_thread_is_no_thread() {
    let point = "write(3</crash/effects>, \"sync (file.rs:1)\\n\", 17) = 17\n";
    let effects = "fsync(3</pool/a>) = 0\nfsync(3</pool/b>) = 0\n";
    let found = |text: String| {
        Findings::of(&Texts::from([(7, text)]), &BTreeSet::from([7])).without_point.len()
    };
    assert_eq!(found(format!("{effects}+++ exited with 0 +++\n")), 1);
    let thread = format!("fsync(3</pool/a>) = 0\n{point}+++ exited with 0 +++\n");
    let started = |program: &str| format!("{thread}execve(\"{program}\", [], 0x1) = 0\n{effects}");
    assert_eq!(found(started("/sbin/mkfs.ext4")), 0);
    assert_eq!(found(started("/somewhere/orlop")), 1);

    let texts = Texts::from([
        (1, "clone3({flags=CLONE_THREAD}, 88) = 7\nclone(flags=CLONE_VFORK) = 9\n".to_owned()),
        (9, "clone3({flags=CLONE_THREAD}, 88) = 7\n".to_owned()),
    ]);
    let ours = threads_of(&texts, &BTreeSet::from([1]));
    assert_eq!(ours, BTreeSet::from([1, 7]));
    assert_eq!(used_otherwise(&texts, &ours), BTreeSet::from([7, 9]));
}

#[test]
fn threads_of_a_program_with_a_reused_number_are_not_ours() {
    let program = "execve(\"/sbin/mkfs.xfs\", [], 0x1) = 0\nclone3({flags=CLONE_THREAD}, 88) = 8\n";
    let texts = Texts::from([
        (1, "clone3({flags=CLONE_THREAD}, 88) = 7\n".to_owned()),
        (7, format!("+++ exited with 0 +++\n{program}+++ exited with 0 +++\n")),
        (8, "pwrite64(3</pool/a>, \"\", 0, 0) = 0\n".to_owned()),
    ]);
    let ours = threads_of(&texts, &BTreeSet::from([1]));
    assert_eq!(ours, BTreeSet::from([1, 7]));
    assert_eq!(used_otherwise(&texts, &ours), BTreeSet::from([8]));
}
