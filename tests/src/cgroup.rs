//! A cgroup with workloads in it, and what it keeps them from.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::capability::VolumeCapabilityExt;
use crate::on_node::OnNode;
use orlop_sys::cgroup_io::IoController;
use orlop_sys::tool;

/// Removed when dropped.
pub struct Cgroup {
    path: PathBuf,
    /// Below the hierarchy's root, as `ORLOP_WORKLOAD_CGROUP` has it.
    pub name: String,
    is_unified: bool,
}

impl Cgroup {
    /// Without processes. A daemon whose limits a test sets needs one: without it they hold for
    /// every process of the machine.
    #[expect(clippy::new_without_default, reason = "it makes something")]
    pub fn new() -> Self {
        static GROUPS: AtomicU32 = AtomicU32::new(0);
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        Self::at(&format!("orlop-test-{}-{number}", std::process::id()))
    }

    /// One group below this one.
    pub fn child(&self, name: &str) -> Self {
        Self::at(&format!("{}/{name}", self.name))
    }

    fn at(name: &str) -> Self {
        let found = IoController::detect("/").expect("look for cgroups");
        let (mount, is_unified) = match found.expect("a machine that can limit I/O") {
            IoController::V1 { mount, .. } => (mount, false),
            IoController::V2 { mount, .. } => (mount, true),
        };
        let path = mount.join(name);
        std::fs::create_dir(&path).expect("make a cgroup");
        Self { path, name: name.to_owned(), is_unified }
    }

    /// Removed and made again, as the runtime does it when the last pod has ended and the next begins.
    pub fn remake(&self) {
        self.remove().expect("remove a cgroup");
        std::fs::create_dir(&self.path).expect("make a cgroup");
    }

    /// Of cgroup v1 alone.
    pub fn rename(&mut self, name: &str) {
        let path = self.path.with_file_name(name);
        std::fs::rename(&self.path, &path).expect("rename a cgroup");
        self.path = path;
        let above = self.name.rsplit_once('/').map_or("", |(above, _)| above);
        self.name = format!("{above}/{name}");
    }

    fn remove(&self) -> std::io::Result<()> {
        // A process that has ended is still counted for a moment.
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match std::fs::remove_dir(&self.path) {
                Err(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                removed => return removed,
            }
        }
    }

    pub fn is_unified(&self) -> bool {
        self.is_unified
    }

    /// What the kernel holds for a device: `writeBytesPerSecond` and its like, with its value.
    pub fn limits_of(&self, (major, minor): (u32, u32)) -> Vec<(&'static str, u64)> {
        let device = format!("{major}:{minor} ");
        let read = |file: &str| {
            let path = self.path.join(file);
            // Without a file of its own, it has the limit of the group above.
            if self.is_unified && self.path.is_dir() && !path.exists() {
                return None;
            }
            let text = std::fs::read_to_string(path).expect("read a limit");
            let line = text.lines().find_map(|line| line.strip_prefix(&device));
            line.map(str::to_owned)
        };
        if self.is_unified {
            let line = read("io.max").unwrap_or_default();
            let value = |key: &str| {
                let words = line.split_whitespace();
                words.filter_map(|word| word.strip_prefix(key)?.parse().ok()).next()
            };
            let keys = NAMES.map(|(name, _, key)| (name, value(key)));
            return keys.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        }
        let values = NAMES.map(|(name, file, _)| (name, read(file).map(|text| number(&text))));
        values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Runs dd in this group and tells how many bytes a second it moved.
    pub fn rate(&self, job: &Job<'_>) -> u64 {
        const SCRIPT: &str = "echo $$ >\"$1\" && shift && exec dd \"$@\" status=none";
        let procs = self.path.join("cgroup.procs");
        let sizes = [format!("bs={}", job.block), format!("count={}", job.count)];
        let path = job.path.to_str().expect("paths of tests are text");
        let transfer = match job.writes {
            true => [
                "if=/dev/zero".to_owned(),
                format!("of={path}"),
                "oflag=direct".to_owned(),
                "conv=notrunc".to_owned(),
            ],
            false => [
                format!("if={path}"),
                "of=/dev/null".to_owned(),
                "iflag=direct".to_owned(),
                "conv=notrunc".to_owned(),
            ],
        };
        let procs = procs.to_str().expect("a cgroup's path is text").to_owned();
        let arguments = ["-c".to_owned(), SCRIPT.to_owned(), "sh".to_owned(), procs];
        let began = Instant::now();
        let all = arguments.into_iter().chain(transfer).chain(sizes);
        tool::run("sh", all).expect("a workload in the cgroup");
        let took = u64::try_from(began.elapsed().as_micros()).expect("a short time").max(1);
        job.block * job.count * 1_000_000 / took
    }
}

/// Our names, the files of cgroup v1, the keys of cgroup v2.
const NAMES: [(&str, &str, &str); 4] = [
    ("readIops", "blkio.throttle.read_iops_device", "riops="),
    ("writeIops", "blkio.throttle.write_iops_device", "wiops="),
    ("readBytesPerSecond", "blkio.throttle.read_bps_device", "rbps="),
    ("writeBytesPerSecond", "blkio.throttle.write_bps_device", "wbps="),
];

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Some blocks, written to or read from a path past the page cache.
pub struct Job<'a> {
    pub path: &'a Path,
    pub writes: bool,
    pub block: u64,
    pub count: u64,
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("{} is left: {error}", self.path.display());
        }
    }
}

/// The number of the device that stands at a published path, or holds the filesystem there.
pub fn device_at(node: &OnNode) -> (u32, u32) {
    let found = node.target.metadata().expect("something is published");
    let number = if node.capability.is_block() { found.rdev() } else { found.dev() };
    (rustix::fs::major(number), rustix::fs::minor(number))
}
