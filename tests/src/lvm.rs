//! A volume group of LVM on a loop device, with a thin pool: made for a test and gone with it.
//!
//! Where the kernel has no device-mapper, tests on it return at once; the guest of tests/guest has one.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use orlop_sys::device_mapper::MappedDevice;
use orlop_sys::loopdev::{self, AttachOptions};
use orlop_sys::tool;
use rustix::fs::FlockOperation;

use crate::MIB;
use crate::launch::Launch;
use crate::leaks;
use crate::pool;
use crate::scratch::Scratch;

const THIN_POOL: &str = "thin";
const THIN_METADATA: u64 = 32 * MIB;
const CHUNK: u64 = 64 << 10;
const LABEL: &str = "orlop-test volume group";
/// Of the tags that Orlop gives to what is its own.
const TAG: &str = "orlop1:";
const SUSPENDED: &str = " (suspended)";

/// False where the kernel has no device-mapper. The guest has to have one: there, tests would prove nothing without it.
pub fn device_mapper() -> bool {
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        // Where it cannot be loaded, it is built in or not there.
        let _ = tool::run("modprobe", ["--quiet", "dm_mod"]);
        let found = File::open("/dev/mapper/control").is_ok() && tool::find("lvm").is_some();
        let is_guest = std::env::var_os("ORLOP_TEST_DISK").is_some();
        assert!(found || !is_guest, "no device-mapper in the guest");
        found
    });
    if !*FOUND {
        // libtest cannot skip a test that runs; it shows this with --show-output.
        eprintln!("skipped: this kernel has no device-mapper; `tests/guest/run` has one");
    }
    *FOUND
}

/// Leaves the test where the kernel has no device-mapper, or the run opted out of tests that need root.
#[macro_export]
macro_rules! needs_device_mapper {
    () => {
        if !$crate::root() || !$crate::device_mapper() {
            return;
        }
    };
}

/// The sizes of a volume group.
#[derive(Debug, Clone, Copy)]
pub struct LvmSize {
    /// Of the thin pool's data.
    pub thin: u64,
    /// What is left in the volume group beside it.
    pub free: u64,
}

pub struct TestLvm {
    pub group: String,
    image: PathBuf,
    scratch: Scratch,
}

impl TestLvm {
    pub fn new(size: LvmSize) -> Self {
        let scratch = Scratch::new();
        let image = scratch.join("group.img");
        Self::on(scratch, image, size)
    }

    /// In memory, for tests that end processes but never the machine.
    pub fn in_memory(size: LvmSize) -> Self {
        let scratch = Scratch::new();
        let image = pool::mount_memory(&scratch).join("group.img");
        Self::on(scratch, image, size)
    }

    /// On a disk that is blank and large enough.
    pub fn on_disk(disk: &Path, size: LvmSize) -> Self {
        let scratch = Scratch::new();
        let image = scratch.join("none");
        Self::with_disk(scratch, image, disk, size)
    }

    fn on(scratch: Scratch, image: PathBuf, size: LvmSize) -> Self {
        // With the volume group's own records, and the spare metadata of thin pools.
        let bytes = size.thin + size.free + 2 * THIN_METADATA + 32 * MIB;
        File::create_new(&image).and_then(|file| file.set_len(bytes)).expect("make a disk");
        let options = AttachOptions { label: LABEL, read_only: false, size: bytes };
        let disk = loopdev::attach(&image, &options).expect("attach the disk").path();
        Self::with_disk(scratch, image, &disk, size)
    }

    fn with_disk(scratch: Scratch, image: PathBuf, disk: &Path, size: LvmSize) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let test = Self { group: format!("orlopt{}n{number}", std::process::id()), image, scratch };
        let disk = disk.to_str().expect("paths of tests are text");
        test.lvm(&["vgcreate", "--metadatasize", "16m", &test.group, disk]);
        let [data, metadata, chunk] =
            [size.thin, THIN_METADATA, CHUNK].map(|bytes| format!("{bytes}b"));
        let thin = ["lvcreate", "--type", "thin-pool", "--name", THIN_POOL, "--size", &data];
        let how = ["--poolmetadatasize", &metadata, "--chunksize", &chunk, &test.group];
        test.lvm(&[&thin[..], &how].concat());
        test
    }

    /// A daemon with its own socket, run directory and node id, on the thin pool.
    pub fn launch(&self) -> Launch {
        let launch = Launch::in_scratch(self.scratch.clone())
            .env("ORLOP_POOL_KIND", "lvm")
            .env("ORLOP_LVM_GROUP", &self.group)
            .env("ORLOP_LVM_THIN_POOL", THIN_POOL)
            // As quick as cryptsetup allows: the processor of the guest is emulated.
            .env("ORLOP_ENCRYPTION_KDF", "pbkdf2:1000");
        launch.with_fixtures(self.fixtures())
    }

    /// A daemon with two pools: `lvm`, and `local`, a directory.
    pub fn launch_beside_a_directory(&self) -> Launch {
        let settings = self.scratch.join("orlop.toml");
        let pools = format!(
            "[[pool]]\nname = \"local\"\npath = \"{}\"\n[[pool]]\nname = \"lvm\"\nkind = \"lvm\"\n\
             group = \"{}\"\nthin_pool = \"{THIN_POOL}\"\n",
            self.scratch.ensure_dir("local").display(),
            self.group,
        );
        std::fs::write(&settings, pools).expect("write the settings");
        let launch = Launch::in_scratch(self.scratch.clone()).arg("--config").arg(settings);
        launch.with_fixtures(self.fixtures())
    }

    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Room beside a volume group that is in memory.
    pub fn memory(&self) -> PathBuf {
        pool::memory_of(&self.scratch)
    }

    fn fixtures(&self) -> Vec<PathBuf> {
        vec![self.image.clone(), self.memory()]
    }

    /// As the machine's administrator, with all that it asks answered by yes; what it prints.
    #[track_caller]
    pub fn lvm(&self, words: &[&str]) -> String {
        let words = words.iter().chain(&["--yes"]);
        let output = tool::run("lvm", words).expect("run lvm");
        String::from_utf8(output.stdout).expect("lvm prints text")
    }

    /// What Orlop has here: volumes and snapshots by what they are (`volumes/ID`, `snapshots/ID`), or are not yet or no
    /// longer (`draft/ID`, `deleted/ID`); records of groups; and devices that show volumes.
    pub fn objects(&self) -> Vec<String> {
        let fields = ["--noheadings", "--separator", "|", "-o", "lv_name,lv_tags"];
        let listed = self.lvm(&[&["lvs", &self.group], &fields[..]].concat());
        let mut found = BTreeSet::new();
        let mut devices = vec![format!("{}-v--", self.group), format!("{}-s--", self.group)];
        for line in listed.lines() {
            let (name, tags) = line.trim().split_once('|').expect("two fields");
            let tags: Vec<_> = tags.split(',').filter_map(|tag| tag.strip_prefix(TAG)).collect();
            if name == THIN_POOL {
                for (key, rest) in tags.iter().filter_map(|tag| tag.split_once(':')) {
                    match key {
                        "pool" => devices.push(format!("-v-{rest}-")),
                        id if id.starts_with('g') => drop(found.insert(format!("groups/{id}"))),
                        // Which node used the pool last.
                        _ => {}
                    }
                }
                continue;
            }
            let state = tags.iter().find(|tag| !tag.contains(':')).copied();
            let directory = match state {
                Some("whole") if name.starts_with("v-") => "volumes",
                Some("whole") => "snapshots",
                other => other.unwrap_or("foreign"),
            };
            found.insert(format!("{directory}/{name}"));
        }
        let is_ours = |name: &&String| devices.iter().any(|part| name.contains(part));
        found.extend(mapped_devices().iter().filter(is_ours).map(|name| format!("device {name}")));
        found.into_iter().collect()
    }

    /// Of a volume or snapshot, by its id.
    pub fn lv_bytes(&self, id: &str) -> u64 {
        let lv = format!("{}/{id}", self.group);
        let fields = ["--noheadings", "--units", "b", "--nosuffix", "-o", "lv_size"];
        let bytes = self.lvm(&[&["lvs", &lv], &fields[..]].concat());
        bytes.trim().parse().expect("a size")
    }

    /// As LVM calls it.
    pub fn thin_pool(&self) -> String {
        format!("{}/{THIN_POOL}", self.group)
    }

    /// Of `START LENGTH thin-pool TRANSACTION METADATA DATA RESERVED ...`, as the kernel has it.
    fn status_word(&self, index: usize) -> String {
        let status = dmsetup(&["status", &format!("{}-{THIN_POOL}-tpool", self.group)]);
        status.split_whitespace().nth(index).expect("the status of a thin pool").to_owned()
    }

    /// What of the thin pool's data is in use.
    pub fn used_bytes(&self) -> u64 {
        let data = self.status_word(5);
        let chunks: u64 = data.split_once('/').expect("used and all").0.parse().expect("a number");
        chunks * CHUNK
    }

    /// For readers of the thin pool's metadata, by whatever program.
    pub fn has_reserved_metadata(&self) -> bool {
        self.status_word(6) != "-"
    }

    /// As long as it is held, each command of LVM on the volume group waits.
    pub fn lock(&self) -> LvmLock {
        let path = Path::new("/run/lock/lvm").join(format!("V_{}", self.group));
        std::fs::create_dir_all("/run/lock/lvm").expect("make the directory of LVM's locks");
        loop {
            let file = File::options().create(true).append(true).open(&path);
            let file = file.expect("open LVM's lock");
            rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("take LVM's lock");
            // A command that ends removes the file that it had locked.
            let locked = file.metadata().expect("look at LVM's lock").ino();
            if std::fs::metadata(&path).is_ok_and(|there| there.ino() == locked) {
                return LvmLock(file);
            }
        }
    }
}

/// What hangs a command of LVM, until it is dropped.
pub struct LvmLock(#[expect(dead_code, reason = "closing it releases the lock")] File);

impl Drop for TestLvm {
    fn drop(&mut self) {
        // With those of daemons that were killed.
        leaks::remove_all_but(self.scratch.path(), &self.fixtures());
        let left: Vec<_> = self
            .objects()
            .into_iter()
            .filter_map(|it| Some(it.strip_prefix("device ")?.to_owned()))
            .collect();
        for name in left.iter().map(|name| name.trim_end_matches(SUSPENDED)) {
            let _ = tool::run("dmsetup", ["resume", name]);
            let _ = tool::run("dmsetup", ["remove", "--retry", name]);
        }
        // Not removed, which takes a second for a few volumes: it goes with its disk.
        let put_away = tool::run("lvm", ["vgchange", "--activate", "n", &self.group]);
        if !std::thread::panicking() {
            put_away.expect("deactivate the volume group");
            assert!(left.is_empty(), "devices are left: {left:?}");
        }
    }
}

/// Names of all devices of device-mapper; `NAME (suspended)` of those that are.
pub fn mapped_devices() -> Vec<String> {
    let found = orlop_sys::device_mapper::named("").expect("list the devices of device-mapper");
    let name = |device: MappedDevice| {
        let state = format!("/sys/dev/block/{}:{}/dm/suspended", device.major, device.minor);
        // One that is gone since is left out, or is not suspended.
        let is_suspended = std::fs::read_to_string(state).is_ok_and(|state| state.trim() == "1");
        if is_suspended { format!("{}{SUSPENDED}", device.name) } else { device.name }
    };
    found.into_iter().map(name).collect()
}

#[track_caller]
fn dmsetup(words: &[&str]) -> String {
    let output = tool::run("dmsetup", words).expect("run dmsetup");
    String::from_utf8(output.stdout).expect("dmsetup prints text")
}
