//! Pools to test on: small filesystems of their own, or just a directory.

use std::fs::File;
use std::path::{Path, PathBuf};

use orlop_sys::filesystem::{self, Format, FsKind};
use orlop_sys::loopdev::{self, AttachOptions};
use orlop_sys::mounts::{self, FsMount};

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

    /// Do copies share their data with the original, rather than take space of their own?
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
        let memory = scratch.ensure_dir(MEMORY);
        let tmpfs = FsMount {
            device: Path::new("tmpfs"),
            fs_type: "tmpfs",
            options: &[],
            read_only: false,
        };
        mounts::mount_filesystem(&tmpfs, &memory).expect("mount a filesystem in memory");
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

    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Room beside a pool that is in memory.
    pub fn memory(&self) -> PathBuf {
        self.scratch.join(MEMORY)
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
    pub(crate) fn fixtures(&self) -> Vec<PathBuf> {
        vec![self.image.clone(), self.path.clone(), self.memory()]
    }

    fn mount(&self, kind: FsKind, size: u64) {
        File::create_new(&self.image)
            .and_then(|image| image.set_len(size))
            .expect("make the pool's image");
        let options = AttachOptions { label: "orlop-test pool", read_only: false, size };
        let device =
            loopdev::attach(&self.image, &options).expect("attach the pool's image").path();
        let uuid = orlop_sys::rand::random_bytes().expect("random bytes");
        let format = Format { kind, uuid, extra_options: &[] };
        filesystem::format(&device, &format).expect("make the pool's filesystem");
        mount_at(&device, kind, &self.path);
    }
}

fn mount_at(device: &Path, kind: FsKind, target: &Path) {
    let mount = FsMount { device, fs_type: kind.as_str(), options: &[], read_only: false };
    mounts::mount_filesystem(&mount, target).expect("mount the pool's filesystem");
}
