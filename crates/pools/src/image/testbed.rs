//! Pools on real filesystems for tests, taken down with all their devices and mounts when the
//! test ends, also by a panic.

pub(super) mod by_hand;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_model::record::RECORD_VERSION;
use orlop_model::{
    AccessMode, AccessType, CapabilitySet, Consistency, ContentSource, Draft, FormatState,
    GroupSnapshotId, GroupSnapshotRecord, IoLimits, NameDigest, NewGroupSnapshot, NewSnapshot,
    NewVolume, Pool, Provisioning, Result, SnapshotId, SnapshotRecord, Timestamp, Topology,
    VolumeCapability, VolumeGroupId, VolumeGroupRecord, VolumeId, VolumeParameters, VolumeRecord,
};
use orlop_sys::file;
use orlop_sys::filesystem::{Format, FsKind, format};
use orlop_sys::loopdev::{self, AttachOptions, LoopDevice};
use orlop_sys::mounts::{self, FsMount};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

use super::{Floor, ImagePool, ImagePoolConfig};

pub(super) const MIB: u64 = 1 << 20;
const TESTBED_BYTES: u64 = 1 << 30;
const TESTBED_LABEL: &str = "orlop-test-bed";

/// A temporary directory, or a separate filesystem mounted in one.
pub(super) struct Testbed {
    path: PathBuf,
    device: Option<LoopDevice>,
    directory: TempDir,
}

/// `None` where the run opted out of tests that need root.
fn root_or_opted_out() -> Option<()> {
    if std::env::var_os("ORLOP_TEST_SKIP_ROOT").is_some_and(|value| value == "1") {
        return None;
    }
    assert!(rustix::process::geteuid().is_root(), "run as root, or set ORLOP_TEST_SKIP_ROOT=1");
    Some(())
}

impl Testbed {
    /// Whatever filesystem temporary files are on.
    pub(super) fn plain() -> Option<Self> {
        root_or_opted_out()?;
        let directory = tempfile::tempdir().unwrap();
        Some(Self { path: directory.path().to_owned(), device: None, directory })
    }

    pub(super) fn xfs() -> Option<Self> {
        Self::formatted(FsKind::Xfs)
    }

    pub(super) fn btrfs() -> Option<Self> {
        Self::formatted(FsKind::Btrfs)
    }

    /// Where btrfs packs all data, so that addresses prove nothing.
    pub(super) fn btrfs_compressed() -> Option<Self> {
        Self::mounted(FsKind::Btrfs, &["compress-force=zstd".to_owned()])
    }

    pub(super) fn ext4() -> Option<Self> {
        Self::formatted(FsKind::Ext4)
    }

    pub(super) fn tmpfs() -> Option<Self> {
        let mut testbed = Self::plain()?;
        testbed.path = testbed.path.join("mounted");
        mount_nodev("tmpfs", &[], &testbed.path);
        Some(testbed)
    }

    /// An overlay whose upper layer is on another bed, which has to outlive it.
    pub(super) fn overlay_on(below: &Self) -> Self {
        let mut testbed = Self::plain().unwrap();
        let layers = ["lowerdir", "upperdir", "workdir"].map(|name| {
            let directory = below.path.join(name);
            mounts::ensure_directory(&directory).unwrap();
            format!("{name}={}", directory.display())
        });
        testbed.path = testbed.path.join("mounted");
        mount_nodev("overlay", &layers, &testbed.path);
        testbed
    }

    /// One of each kind that the pool treats differently.
    pub(super) fn all() -> Vec<Self> {
        let beds = [Self::plain(), Self::xfs(), Self::btrfs(), Self::ext4()];
        beds.into_iter().flatten().collect()
    }

    pub(super) fn sharing() -> Vec<Self> {
        [Self::xfs(), Self::btrfs()].into_iter().flatten().collect()
    }

    fn formatted(kind: FsKind) -> Option<Self> {
        Self::mounted(kind, &[])
    }

    fn mounted(kind: FsKind, options: &[String]) -> Option<Self> {
        let mut testbed = Self::plain()?;
        let image = testbed.path.join("image");
        file::set_length(&File::create(&image).unwrap(), TESTBED_BYTES).unwrap();
        let attachment =
            AttachOptions { label: TESTBED_LABEL, read_only: false, size: TESTBED_BYTES };
        let device = loopdev::attach(&image, &attachment).unwrap();
        testbed.device = Some(device.clone());
        testbed.path = testbed.path.join("mounted");
        let uuid = orlop_sys::rand::random_bytes().unwrap();
        format(&device.path(), &Format { kind, uuid, extra_options: &[] }).unwrap();
        mounts::ensure_directory(&testbed.path).unwrap();
        let mount =
            FsMount { device: &device.path(), fs_type: kind.as_str(), options, read_only: false };
        mounts::mount_filesystem(&mount, &testbed.path).unwrap();
        Some(testbed)
    }

    /// As after a reboot with other options in fstab. Nothing in it may be in use.
    pub(super) fn mount_again(&self, kind: FsKind, options: &[&str]) {
        let device = self.device.as_ref().unwrap().path();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        until_unmounted(&self.path).unwrap();
        until_released(&device);
        let mount = FsMount {
            device: &device,
            fs_type: kind.as_str(),
            options: &options,
            read_only: false,
        };
        mounts::mount_filesystem(&mount, &self.path).unwrap();
    }

    /// Where its filesystem is mounted.
    pub(super) fn disk(&self) -> &Path {
        &self.path
    }

    pub(super) fn pool_path(&self) -> PathBuf {
        self.path.join("pool")
    }

    pub(super) fn config(&self) -> ImagePoolConfig {
        ImagePoolConfig {
            path: self.pool_path(),
            name: "test".to_owned(),
            topology: Topology::default(),
            floor: Floor::Bytes(16 * MIB),
            overcommit_percent: 100,
            managed_size: None,
            create: true,
            served_before: Vec::new(),
            thaw_helper: None,
        }
    }

    pub(super) fn open(&self) -> ImagePool {
        ImagePool::open(self.config()).unwrap()
    }

    /// With a filesystem that it has to itself.
    pub(super) fn is_disk(&self) -> bool {
        self.device.is_some()
    }

    /// Others take all space there is.
    pub(super) fn fill_up(&self) {
        let foreign = File::create(self.path.join("foreign")).unwrap();
        let (mut taken, mut piece) = (0, TESTBED_BYTES);
        while piece >= 4096 {
            match file::preallocate(&foreign, taken, piece) {
                Ok(()) => taken += piece,
                Err(error) if error.is_no_space() => piece /= 2,
                Err(error) => panic!("{error}"),
            }
        }
        file::sync_filesystem(&self.path).unwrap();
    }

    pub(super) fn free(&self) -> u64 {
        file::sync_filesystem(&self.path).unwrap();
        file::space(&self.path).unwrap().free
    }
}

impl Testbed {
    /// From the inside out; goes on after a failure and returns them all.
    fn take_down(&self) -> Vec<String> {
        let pool = self.pool_path();
        let detach = |device: &loopdev::LoopStatus| until_detached(&device.device, &device.label);
        let (volumes, images): (Vec<_>, Vec<_>) = devices_of_pool_at(&pool)
            .into_iter()
            .partition(|device| device.label.starts_with("v-"));
        let mut outcomes: Vec<_> = volumes.iter().map(detach).collect();
        outcomes.push(until_unmounted(&pool));
        outcomes.push(until_unmounted(&pool.join("mnt")));
        outcomes.extend(images.iter().map(detach));
        if self.path != self.directory.path() {
            outcomes.push(until_unmounted(&self.path));
        }
        if let Some(device) = &self.device {
            outcomes.push(until_detached(device, TESTBED_LABEL));
        }
        outcomes.push(file::remove_tree(self.directory.path()).map_err(|error| error.to_string()));
        outcomes.into_iter().filter_map(std::result::Result::err).collect()
    }
}

/// Waits for those who have it for a while, as a child does that is being started, a program that looks
/// at all devices, or the kernel at the end of an unmount. On a busy machine that may take longer than
/// a daemon waits.
fn while_busy(mut step: impl FnMut() -> orlop_sys::Result<()>) -> orlop_sys::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        match step() {
            Err(error) if error.is_busy() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

fn until_detached(device: &LoopDevice, label: &str) -> std::result::Result<(), String> {
    let detached = while_busy(|| loopdev::ensure_detached(device, label));
    detached.map_err(|error| format!("{error}: {:?}", loopdev::user_of(device)))
}

pub(super) fn until_unmounted(target: &Path) -> std::result::Result<(), String> {
    while_busy(|| mounts::ensure_unmounted(target)).map_err(|error| error.to_string())
}

/// A program that is being started may have a copy of the mount for an instant, and with it the filesystem as it was: a
/// second mount would show that one again.
fn until_released(device: &Path) {
    let exclusively = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let claim = || rustix::fs::open(device, exclusively, Mode::empty());
    let deadline = Instant::now() + Duration::from_secs(120);
    while let Err(error) = claim() {
        assert!(Instant::now() < deadline, "{device:?}: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn mount_nodev(fs_type: &str, options: &[String], target: &Path) {
    mounts::ensure_directory(target).unwrap();
    let mount = FsMount { device: Path::new(fs_type), fs_type, options, read_only: false };
    mounts::mount_filesystem(&mount, target).unwrap();
}

/// A test that leaves something behind has failed; in a panic it has already.
impl Drop for Testbed {
    fn drop(&mut self) {
        let failures = self.take_down();
        assert!(failures.is_empty() || std::thread::panicking(), "left behind: {failures:?}");
    }
}

/// All devices that carry the id of the pool in their label, the pool's own image included.
pub(super) fn devices_of_pool_at(path: &Path) -> Vec<loopdev::LoopStatus> {
    let Ok(mark) = fs::read(path.join("orlop.pool")) else {
        return Vec::new();
    };
    let mark: serde_json::Value = serde_json::from_slice(&mark).unwrap_or_default();
    let Some(id) = mark["id"].as_str() else {
        return Vec::new();
    };
    let mut devices = all_devices();
    devices.retain(|device| device.label.contains(id));
    devices
}

/// The disk behind a device of another test may be failing just now.
fn all_devices() -> Vec<loopdev::LoopStatus> {
    for _ in 0..100 {
        if let Ok(devices) = loopdev::attached(|_| false) {
            return devices;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Vec::new()
}

pub(super) fn volume_id(pool: &ImagePool, name: &str) -> VolumeId {
    VolumeId::new(pool.id().clone(), NameDigest::of_text(name))
}

pub(super) fn snapshot_id(pool: &ImagePool, name: &str) -> SnapshotId {
    SnapshotId::new(pool.id().clone(), NameDigest::of_text(name))
}

pub(super) fn volume_of(pool: &ImagePool, name: &str, bytes: u64) -> NewVolume {
    let capability =
        VolumeCapability { access: AccessType::Block, mode: AccessMode::SingleNodeWriter };
    NewVolume {
        id: volume_id(pool, name),
        name: name.parse().unwrap(),
        capacity_bytes: bytes,
        capabilities: CapabilitySet::new(vec![capability]).unwrap(),
        parameters: VolumeParameters::default(),
        limits: IoLimits::default(),
        source: None,
        format: FormatState::Blank,
        encryption: None,
        filesystem: None,
        ephemeral: false,
    }
}

pub(super) fn thick_volume_of(pool: &ImagePool, name: &str, bytes: u64) -> NewVolume {
    let mut new = volume_of(pool, name, bytes);
    new.parameters.provisioning = Provisioning::Thick;
    new
}

pub(super) fn copy_of(
    pool: &ImagePool,
    name: &str,
    source: ContentSource,
    bytes: u64,
) -> NewVolume {
    let mut new = volume_of(pool, name, bytes);
    new.source = Some(source);
    new
}

pub(super) fn try_create(pool: &ImagePool, new: &NewVolume) -> Result<VolumeRecord> {
    let mut draft: Box<dyn Draft<VolumeRecord>> = pool.provisioner().begin_volume(new)?;
    draft.capture()?;
    draft.commit()
}

pub(super) fn create(pool: &ImagePool, new: &NewVolume) -> VolumeRecord {
    try_create(pool, new).unwrap()
}

pub(super) fn snapshot_of(pool: &ImagePool, name: &str, source: &VolumeRecord) -> NewSnapshot {
    NewSnapshot {
        id: snapshot_id(pool, name),
        name: name.parse().unwrap(),
        source: source.clone(),
        format: FormatState::Raw,
        consistency: Consistency::Crash,
    }
}

pub(super) fn snapshot(pool: &ImagePool, name: &str, source: &VolumeRecord) -> SnapshotRecord {
    let mut draft = pool.provisioner().begin_snapshot(&snapshot_of(pool, name, source)).unwrap();
    draft.capture().unwrap();
    draft.commit().unwrap()
}

/// A group of the volumes' snapshots; its members are named by both.
pub(super) fn group_of(pool: &ImagePool, name: &str, sources: &[VolumeRecord]) -> NewGroupSnapshot {
    let group = name.parse().unwrap();
    let member = |source: &VolumeRecord| NewSnapshot {
        id: SnapshotId::new(pool.id().clone(), NameDigest::of_member(&group, &source.id)),
        ..snapshot_of(pool, name, source)
    };
    NewGroupSnapshot {
        id: GroupSnapshotId::new(pool.id().clone(), NameDigest::of(&group)),
        name: group.clone(),
        members: sources.iter().map(member).collect(),
        pools: BTreeSet::new(),
    }
}

/// A group of volumes, as a record alone.
pub(super) fn volume_group(
    pool: &ImagePool,
    name: &str,
    members: &[VolumeRecord],
) -> VolumeGroupRecord {
    VolumeGroupRecord {
        version: RECORD_VERSION,
        id: VolumeGroupId::new(pool.id().clone(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        members: members.iter().map(|volume| volume.id.clone()).collect(),
        max_members: 4,
        created: Timestamp { seconds: 1, nanos: 2 },
    }
}

pub(super) fn try_take_group(
    pool: &ImagePool,
    new: &NewGroupSnapshot,
) -> Result<GroupSnapshotRecord> {
    let mut draft = pool.provisioner().begin_group_snapshot(new)?;
    draft.capture()?;
    draft.commit()
}

pub(super) fn data_of(pool: &ImagePool, id: &VolumeId) -> PathBuf {
    pool.catalogue.volume_index().directory_of(id).data()
}

pub(super) fn snapshot_data_of(pool: &ImagePool, id: &SnapshotId) -> PathBuf {
    pool.catalogue.snapshot_index().directory_of(id).data()
}

/// Bytes that differ from block to block and from seed to seed.
pub(super) fn pattern(seed: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0xA5; usize::try_from(length).unwrap()];
    for (block, n) in bytes.chunks_exact_mut(512).zip(0u64..) {
        let word = (n ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        block[..8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes == vec![0; bytes.len()]
}

/// Writes in two places with a hole between, durably, so that allocation can be looked at.
pub(super) fn scribble(path: &Path, seed: u64, piece: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.write_all_at(&pattern(seed, piece), 0).unwrap();
    file.write_all_at(&pattern(!seed, piece), length - piece).unwrap();
    file.sync_all().unwrap();
}

pub(super) fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

/// Where the data of a file lies.
pub(super) fn places(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    let extents = orlop_sys::extents::extents(file, 0).map(std::result::Result::unwrap);
    let data = extents.filter(|extent| extent.kind == orlop_sys::extents::ExtentKind::Data);
    data.map(|extent| (extent.physical, extent.length)).collect()
}

/// Names in a directory of the pool.
pub(super) fn listing(testbed: &Testbed, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(testbed.pool_path().join(directory)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
