//! Volume groups of real LVM on loop devices, for tests; gone with the test.
//!
//! Where the kernel has no device mapper, LVM still keeps the books: it makes logical volumes, and activates none. Tests
//! that need devices run in the guest of tests/guest, and return at once elsewhere.

mod test_pool;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orlop_model::{
    AccessMode, AccessType, CapabilitySet, Consistency, FormatState, GroupSnapshotId,
    GroupSnapshotRecord, IoLimits, NameDigest, PoolId, SnapshotId, SnapshotRecord, Timestamp,
    Topology, VolumeCapability, VolumeId, VolumeParameters, VolumeRecord,
};
use orlop_sys::loopdev::{self, AttachOptions, LoopDevice};
use orlop_sys::tool;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::commands::Lvm;
use super::making::{NewThinPool, ThinPoolSize};
use super::open::LvmPoolConfig;
use crate::image::Floor;
pub(super) use test_pool::TestPool;

pub(super) const MIB: u64 = 1 << 20;
/// Of the volume groups here.
pub(super) const EXTENT: u64 = 4 * MIB;
const LABEL: &str = "orlop-test-lvm";
/// Far more than lvm takes, also where the processor is emulated.
pub(super) const LIMIT: Duration = Duration::from_secs(300);

pub(super) struct Testbed {
    pub(super) group: String,
    disks: Vec<Disk>,
    has_device_mapper: bool,
    /// The last field: the disks are in it.
    directory: TempDir,
}

impl Testbed {
    /// `None`, with a line that says why, where there is no LVM or this run opted out of tests that need root.
    pub(super) fn new(disks: usize) -> Option<Self> {
        root_or_opted_out()?;
        let Some(_) = tool::find("lvm") else {
            return skipped("LVM is not installed");
        };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::Builder::new().prefix("orlop-lvm-").tempdir().unwrap();
        let mut testbed = Self {
            group: format!("orlop-t{number}-{}", std::process::id()),
            disks: Vec::new(),
            has_device_mapper: has_device_mapper(),
            directory,
        };
        for number in 0..disks {
            let image = testbed.directory.path().join(format!("disk{number}"));
            File::create_new(&image).unwrap().set_len(256 * MIB).unwrap();
            testbed.disks.push(Disk::attach(&image));
        }
        let mut create = vec![testbed.group.clone()];
        create.extend(testbed.disks.iter().map(|disk| disk.path().display().to_string()));
        testbed.run("vgcreate", &create);
        Some(testbed)
    }

    /// For a process that works on the volume group of another one, which removes it.
    pub(super) fn elsewhere(group: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { group: group.to_owned(), disks: Vec::new(), has_device_mapper: false, directory }
    }

    /// As [`Self::new`], where logical volumes become devices.
    pub(super) fn with_devices(disks: usize) -> Option<Self> {
        match has_device_mapper() {
            true => Self::new(disks),
            false => skipped("this kernel has no device mapper; `tests/guest/run` has one"),
        }
    }

    /// lvm.conf's, so that no other disk of this machine is looked at, and no file of its LVM written.
    pub(super) fn settings(&self) -> String {
        let accepted = |disk: &Disk| format!("\"a|^{}$|\",", disk.path().display());
        let accepted: String = self.disks.iter().map(accepted).collect();
        let activation = u8::from(self.has_device_mapper);
        let locks = self.directory.path().join("locks");
        format!(
            "devices{{use_devicesfile=0 obtain_device_list_from_udev=0 filter=[{accepted}\"r|.*|\"]}} \
             global{{activation={activation} locking_dir=\"{}\"}} \
             activation{{udev_sync=0 udev_rules=0 monitoring=0}} backup{{backup=0 archive=0}}",
            locks.display()
        )
    }

    pub(super) fn lvm(&self) -> Lvm {
        Lvm::new(self.group.parse().unwrap(), &self.settings(), LIMIT)
    }

    /// Of a pool in the thin pool `tp`, which keeps nothing free and promises what it has.
    pub(super) fn config(&self, create: bool) -> LvmPoolConfig {
        LvmPoolConfig {
            name: "test".to_owned(),
            group: self.group.clone(),
            thin_pool: "tp".to_owned(),
            topology: Topology::default(),
            floor: Floor::Percent(0),
            overcommit_percent: 100,
            create,
            new_thin_pool: NewThinPool { size: ThinPoolSize::Bytes(0), ..NewThinPool::default() },
            extension: None,
            thaw_helper: None,
            suspend_limit: LIMIT,
            lvm_settings: self.settings(),
        }
    }

    /// As long as the file is open, each command on the volume group waits.
    pub(super) fn lock(&self) -> File {
        let path = self.directory.path().join("locks").join(format!("V_{}", self.group));
        loop {
            let file = File::options().create(true).append(true).open(&path).unwrap();
            flock(&file, FlockOperation::LockExclusive).unwrap();
            // A command that ends removes the file that it had locked.
            let is_there = std::fs::metadata(&path)
                .is_ok_and(|there| there.ino() == file.metadata().unwrap().ino());
            if is_there {
                return file;
            }
        }
    }

    /// As an operator, and successfully.
    pub(super) fn run<S: AsRef<str>>(&self, command: &str, arguments: &[S]) {
        self.lvm().change(|| format!("run {command}"), command, arguments).unwrap();
    }

    /// With all that it can hold.
    pub(super) fn create_thin_pool(&self, name: &str, size: u64) {
        let size = format!("{size}b");
        let create = ["--type", "thin-pool", "--size", &size, "--name", name, &self.group];
        self.run("lvcreate", &create);
    }

    /// A logical volume that is not activated.
    pub(super) fn create_lv(&self, name: &str, extents: u32, tags: &[String]) {
        let extents = extents.to_string();
        let create = ["-an", "-Wn", "-Zn", "--extents", &extents, "--name", name];
        let mut create: Vec<&str> = create.to_vec();
        for tag in tags {
            create.extend(["--addtag", tag]);
        }
        create.push(&self.group);
        self.run("lvcreate", &create);
    }

    pub(super) fn disk(&self, number: usize) -> String {
        self.disks[number].path().display().to_string()
    }

    /// As if it were pulled out.
    pub(super) fn pull_disk(&mut self) -> PathBuf {
        self.disks.pop().unwrap().image.clone()
    }

    pub(super) fn first_disk(&self) -> String {
        self.disks[0].path().display().to_string()
    }

    /// The last one: whatever is read from it or written to it fails from now on.
    pub(super) fn break_disk(&self) {
        let disk = self.disks.last().unwrap();
        File::options().write(true).open(&disk.image).unwrap().set_len(0).unwrap();
    }

    /// A blank disk, with its path.
    pub(super) fn plug_in_new(&mut self) -> String {
        let image = self.directory.path().join(format!("disk{}", self.disks.len()));
        File::create_new(&image).unwrap().set_len(256 * MIB).unwrap();
        self.plug_in(&image);
        self.disks.last().unwrap().path().display().to_string()
    }

    /// Of the first disk, to be plugged in as another.
    pub(super) fn copy_disk(&self) -> PathBuf {
        let image = &self.disks[0].image;
        let copy = image.with_extension("copy");
        std::fs::copy(image, &copy).unwrap();
        copy
    }

    pub(super) fn plug_in(&mut self, image: &Path) {
        self.disks.push(Disk::attach(image));
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if !self.has_device_mapper {
            return;
        }
        let remove = ["--force", "--force", &self.group];
        let removed = self.lvm().change(|| "clean up".to_owned(), "vgremove", &remove);
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

/// `None` where the run opted out of tests that need root.
fn root_or_opted_out() -> Option<()> {
    if rustix::process::geteuid().is_root() {
        return Some(());
    }
    let opted_out = std::env::var_os("ORLOP_TEST_SKIP_ROOT").is_some_and(|value| value == "1");
    assert!(opted_out, "needs root; ORLOP_TEST_SKIP_ROOT=1 skips it");
    None
}

fn skipped<T>(why: &str) -> Option<T> {
    // libtest cannot skip a test that runs; it shows this with --show-output.
    println!("skipped: {why}");
    None
}

/// The guest has to have one: there these tests would prove nothing without it.
fn has_device_mapper() -> bool {
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        // Where it cannot be loaded, it is built in or not there.
        let _ = tool::run("modprobe", ["--quiet", "dm_mod"]);
        let found = File::open("/dev/mapper/control").is_ok();
        let is_guest = std::env::var_os("ORLOP_TEST_DISK").is_some();
        assert!(found || !is_guest, "no device mapper in the guest");
        found
    });
    *FOUND
}

struct Disk {
    image: PathBuf,
    device: LoopDevice,
}

impl Disk {
    fn attach(image: &Path) -> Self {
        let size = image.metadata().unwrap().len();
        let options = AttachOptions { label: LABEL, read_only: false, size };
        let device = loopdev::attach(image, &options).unwrap();
        Self { image: image.to_owned(), device }
    }

    fn path(&self) -> PathBuf {
        self.device.path()
    }
}

impl Drop for Disk {
    /// Waits for others that look at all devices for a moment.
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while let Err(error) = loopdev::ensure_detached(&self.device, LABEL) {
            if std::thread::panicking() {
                return;
            }
            assert!(Instant::now() < deadline, "{error}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(super) fn pool_id() -> PoolId {
    "01234567".parse().unwrap()
}

pub(super) fn volume_id(name: &str) -> VolumeId {
    VolumeId::new(pool_id(), NameDigest::of_text(name))
}

pub(super) fn volume(name: &str) -> VolumeRecord {
    let capability =
        VolumeCapability { access: AccessType::Block, mode: AccessMode::SingleNodeWriter };
    VolumeRecord {
        version: 1,
        id: volume_id(name),
        name: name.parse().unwrap(),
        capacity_bytes: EXTENT,
        capabilities: CapabilitySet::new(vec![capability]).unwrap(),
        parameters: VolumeParameters::default(),
        limits: IoLimits::default(),
        source: None,
        format: FormatState::Raw,
        encryption: None,
        growing: false,
        ephemeral: false,
        never_published: false,
        created: Timestamp { seconds: 1, nanos: 2 },
        published: BTreeMap::new(),
    }
}

/// With a record that takes several tags.
pub(super) fn volume_with_long_record(name: &str) -> VolumeRecord {
    let mkfs_options = vec!["-L".to_owned(), "é".repeat(700)];
    let parameters = VolumeParameters { mkfs_options, ..VolumeParameters::default() };
    VolumeRecord { parameters, ..volume(name) }
}

pub(super) fn snapshot(name: &str, group: Option<&GroupSnapshotId>) -> SnapshotRecord {
    let source = volume("source");
    SnapshotRecord {
        version: 1,
        id: SnapshotId::new(pool_id(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        source: source.id,
        size_bytes: source.capacity_bytes,
        format: source.format,
        encryption: None,
        capabilities: source.capabilities,
        created: source.created,
        group: group.cloned(),
        consistency: Consistency::Crash,
    }
}

pub(super) fn group_snapshot(name: &str, members: &[SnapshotRecord]) -> GroupSnapshotRecord {
    GroupSnapshotRecord {
        version: 1,
        id: GroupSnapshotId::new(pool_id(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        members: members.iter().map(|member| member.id.clone()).collect(),
        created: Timestamp { seconds: 3, nanos: 4 },
        pools: BTreeSet::new(),
    }
}
