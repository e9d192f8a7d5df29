//! What a process takes of the machine.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Memory that the process has in use now.
pub fn resident_bytes(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The most memory that the process ever had in use.
pub fn peak_resident_bytes(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

/// From now on, the most is counted again.
pub fn forget_peak(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("a running process");
}

fn memory(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("the kernel tells it");
    kib.parse::<u64>().expect("a number") * 1024
}

/// Files and sockets that the process has open.
pub fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a running process").count()
}

/// Lets this process, and what it starts from now on, have so many files open; as root.
pub fn allow_descriptors(count: u64) {
    let now = getrlimit(Resource::Nofile);
    let more = |limit: Option<u64>| limit.map(|limit| limit.max(count));
    let limit = Rlimit { current: more(now.current), maximum: more(now.maximum) };
    setrlimit(Resource::Nofile, limit).expect("raise the limit of open files");
}
