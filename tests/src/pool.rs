//! Pools to test on: small separate filesystems, or just a directory.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_sys::file::{self, CloneOutcome};
use orlop_sys::filesystem::{self, Format, FsKind};
use orlop_sys::loopdev::{self, AttachOptions};
use orlop_sys::mounts::{self, FsMount};
use orlop_sys::tool;

use crate::leaks;
use crate::scratch::Scratch;

const MEMORY: &str = "memory";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolFs {
    Xfs,
    Btrfs,
    /// On the filesystem of the temporary directory, whatever that is.
    Directory,
}

impl PoolFs {
    pub const ALL: [Self; 3] = [Self::Xfs, Self::Btrfs, Self::Directory];

    /// What its disk is formatted with, if it has one.
    fn on_a_disk(self) -> FsKind {
        match self {
            Self::Xfs => FsKind::Xfs,
            Self::Btrfs => FsKind::Btrfs,
            Self::Directory => FsKind::Ext4,
        }
    }

    /// Do copies share their data with the original, rather than take more space?
    pub fn shares_extents(self) -> bool {
        match self {
            Self::Xfs | Self::Btrfs => true,
            Self::Directory => false,
        }
    }
}

pub struct TestPool {
    pub fs: PoolFs,
    /// For `ORLOP_POOL`.
    pub path: PathBuf,
    image: PathBuf,
    scratch: Scratch,
}

impl TestPool {
    /// `size` is that of the filesystem; a plain directory has the size of the disk below it.
    pub fn new(fs: PoolFs, size: u64) -> Self {
        let scratch = Scratch::new();
        let pool =
            Self { fs, path: scratch.ensure_dir("pool"), image: scratch.join("pool.img"), scratch };
        match fs {
            PoolFs::Xfs => pool.mount(FsKind::Xfs, size),
            PoolFs::Btrfs => pool.mount(FsKind::Btrfs, size),
            PoolFs::Directory => {}
        }
        pool
    }

    /// In memory, for tests that end processes but never the machine: what a filesystem has not
    /// written yet is not lost with a process, and thousands of syncs cost nothing. A plain
    /// directory is on an ext4.
    pub fn in_memory(fs: PoolFs, size: u64) -> Self {
        let scratch = Scratch::new();
        let memory = mount_memory(&scratch);
        let path = scratch.ensure_dir("pool");
        let pool = Self { fs, path, image: memory.join("pool.img"), scratch };
        let kind = match fs {
            PoolFs::Xfs => FsKind::Xfs,
            PoolFs::Btrfs => FsKind::Btrfs,
            PoolFs::Directory => FsKind::Ext4,
        };
        pool.mount(kind, size);
        pool
    }

    /// A plain directory, on an ext4 of this size that it has to itself.
    pub fn directory_of(size: u64) -> Self {
        let pool = Self::new(PoolFs::Directory, 0);
        pool.mount(FsKind::Ext4, size);
        pool
    }

    /// With a separate disk, whose image lies in the other pool: what that can do with files,
    /// it can do with this disk. A plain directory is on an ext4.
    pub fn within(outer: &Self, fs: PoolFs, size: u64) -> Self {
        let pool = Self::unmounted(fs, Scratch::within(&outer.path));
        pool.mount(fs.on_a_disk(), size);
        // Else the image would also hold what its reader finds in the page cache.
        let device = loopdev::find(&pool.image, false).expect("look for the disk");
        let status = device.and_then(|device| loopdev::status(&device).expect("look at the disk"));
        assert!(status.is_some_and(|status| status.direct_io), "the disk has a cache");
        pool
    }

    /// As [`Self::within`], but only the disk depends on the other pool.
    pub fn on_a_disk_in(outer: &Self, fs: PoolFs, size: u64) -> Self {
        let image = outer.path.join("disk.img");
        let pool = Self { image, ..Self::unmounted(fs, Scratch::new()) };
        pool.mount(fs.on_a_disk(), size);
        pool
    }

    /// Another pool of the same test, for a daemon that serves both.
    pub fn beside(&self, name: &str, fs: PoolFs, size: u64) -> Self {
        let scratch = self.scratch.clone();
        let image = scratch.join(format!("{name}.img"));
        let pool = Self { fs, path: scratch.ensure_dir(name), image, scratch };
        if size > 0 {
            pool.mount(fs.on_a_disk(), size);
        }
        pool
    }

    /// Unmounts the disk and lets go of it, whatever state it is in.
    pub fn unplug(&self) {
        leaks::until_unmounted(&self.path).expect("unmount the pool");
        for found in leaks::loop_devices(&self.image) {
            leaks::until_detached(&found).expect("detach the pool's image");
        }
    }

    /// The same disk as it is at this instant, attached to nothing. For pools [`Self::within`]
    /// one that shares extents.
    pub fn cut(&self) -> Self {
        let directory = self.scratch.path().parent().expect("a directory around the scratch");
        let copy = Self::unmounted(self.fs, Scratch::within(directory));
        let source = File::open(&self.image).expect("open the disk's image");
        let target = File::create_new(&copy.image).expect("make the copy of the disk");
        let outcome = file::try_clone_file(&source, &target).expect("copy the disk");
        assert_eq!(outcome, CloneOutcome::Shared, "only a shared copy is of one instant");
        copy
    }

    /// Mounts a disk that was [`Self::cut`] or [`Self::unplug`]ged, as a machine does when its power
    /// is back.
    pub fn power_on(&self) {
        let kind = self.fs.on_a_disk();
        let options = match kind {
            // The disk that this is a copy of may still be mounted.
            FsKind::Xfs => &["nouuid".to_owned()][..],
            FsKind::Ext4 | FsKind::Btrfs => &[],
        };
        mount_at(&self.attach(), kind, options, &self.path);
    }

    fn unmounted(fs: PoolFs, scratch: Scratch) -> Self {
        Self { fs, path: scratch.ensure_dir("pool"), image: scratch.join("pool.img"), scratch }
    }

    /// With another filesystem on top, as when its disk was not mounted.
    pub fn cover(path: &Path) -> Result<(), String> {
        let words = ["-t", "tmpfs", "none"].map(OsStr::new);
        let words = words.into_iter().chain([path.as_os_str()]);
        tool::run("mount", words).map(drop).map_err(|error| error.to_string())
    }

    pub fn uncover(path: &Path) -> Result<(), String> {
        tool::run("umount", [path]).map(drop).map_err(|error| error.to_string())
    }

    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Room beside a pool that is in memory.
    pub fn memory(&self) -> PathBuf {
        memory_of(&self.scratch)
    }

    /// The image of a volume, by its id.
    pub fn volume_data(&self, id: &str) -> PathBuf {
        self.path.join("volumes").join(id).join("data")
    }

    pub fn snapshot_data(&self, id: &str) -> PathBuf {
        self.path.join("snapshots").join(id).join("data")
    }

    pub fn volume_record(&self, id: &str) -> PathBuf {
        self.path.join("volumes").join(id).join("record.json")
    }

    /// Names in one of the pool's directories, such as `volumes` or `trash`.
    pub fn entries(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path.join(directory)).expect("list the pool");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("list the pool").file_name())
            .map(|name| name.into_string().expect("names of the pool are text"))
            .collect();
        names.sort();
        names
    }

    /// What is attached and mounted for the pool's own sake.
    pub fn fixtures(&self) -> Vec<PathBuf> {
        vec![self.image.clone(), self.path.clone(), self.memory()]
    }

    fn mount(&self, kind: FsKind, size: u64) {
        File::create_new(&self.image)
            .and_then(|image| image.set_len(size))
            .expect("make the pool's image");
        let device = self.attach();
        let uuid = orlop_sys::rand::random_bytes().expect("random bytes");
        let format = Format { kind, uuid, extra_options: &[] };
        filesystem::format(&device, &format).expect("make the pool's filesystem");
        mount_at(&device, kind, &[], &self.path);
    }

    fn attach(&self) -> PathBuf {
        let size = std::fs::metadata(&self.image).expect("look at the pool's image").len();
        let options = AttachOptions { label: "orlop-test pool", read_only: false, size };
        loopdev::attach(&self.image, &options).expect("attach the pool's image").path()
    }
}

/// A filesystem in memory.
pub(crate) fn mount_memory(scratch: &Scratch) -> PathBuf {
    let memory = scratch.ensure_dir(MEMORY);
    let tmpfs =
        FsMount { device: Path::new("tmpfs"), fs_type: "tmpfs", options: &[], read_only: false };
    mounts::mount_filesystem(&tmpfs, &memory).expect("mount a filesystem in memory");
    memory
}

/// Where [`mount_memory`] mounts one.
pub(crate) fn memory_of(scratch: &Scratch) -> PathBuf {
    scratch.join(MEMORY)
}

/// Other tests start daemons at the same time, and a child has the files of all threads, such as a claim of
/// the device that was just formatted, until it executes its program.
fn mount_at(device: &Path, kind: FsKind, options: &[String], target: &Path) {
    const TIMEOUT: Duration = Duration::from_secs(120);
    let mount = FsMount { device, fs_type: kind.as_str(), options, read_only: false };
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match mounts::mount_filesystem(&mount, target) {
            Err(error) if error.is_busy() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            mounted => return mounted.expect("mount the pool's filesystem"),
        }
    }
}
