//! The floor: the system calls of a durable operation, the usual way, made by this process.

pub(crate) mod echo;
pub(crate) mod template;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_sys::file::{self, CloneOutcome};
use orlop_sys::loopdev::{self, AttachOptions, LoopDevice};
use orlop_sys::mounts::{self, BindAccess, FsMount};
use rustix::fs::copy_file_range;
use rustix::mount::{UnmountFlags, unmount};

use crate::driver::Kind;
use crate::stopwatch::{Steps, Stopwatch};
use crate::testbed::Testbed;
use template::Template;

const OPEN: &str = "open (O_CREAT), ftruncate";
const CLONE: &str = "FICLONE";
const FSYNC: &str = "fsync of a new file";
const RENAME: &str = "rename";
const FSYNC_DIRECTORY: &str = "fsync of a directory";
const UNLINK: &str = "unlink";
const CONFIGURE: &str = "LOOP_CONFIGURE";
const CLEAR: &str = "LOOP_CLR_FD";
const MOUNT: &str = "mount of an ext4";
const UNMOUNT: &str = "umount of an ext4";
const BIND: &str = "bind (open_tree, move_mount)";
const UNBIND: &str = "umount of a bind";
const FROM_TEMPLATE: &str = "FICLONE of a formatted template, fresh UUID, fsync";
const COPY_BY_ONE_FSYNC: &str = "a copy: open, FICLONE, rename, fsync of the directory alone";
pub(crate) const MKFS: &str = "mkfs.ext4 (exec)";

/// In the order of a volume's life.
pub(crate) const CALLS: [&str; 15] = [
    OPEN,
    CLONE,
    FSYNC,
    RENAME,
    FSYNC_DIRECTORY,
    COPY_BY_ONE_FSYNC,
    MKFS,
    FROM_TEMPLATE,
    CONFIGURE,
    MOUNT,
    BIND,
    UNBIND,
    UNMOUNT,
    CLEAR,
    UNLINK,
];

const LABEL: &str = "bench bare";
const BLOCK: usize = 4096;
const CHUNK: usize = 1 << 20;

pub(crate) struct Baseline {
    directory: PathBuf,
    staging: PathBuf,
    target: PathBuf,
    size: u64,
    template: Template,
}

impl Baseline {
    /// For images of one size.
    pub(crate) fn new(testbed: &Testbed, size: u64) -> Self {
        let directory = testbed.directory("bare");
        let staging = testbed.mount_point("staging");
        std::fs::create_dir(&staging).expect("make a mount point");
        let template = Template::new(&directory.join("template"), size);
        Self { directory, staging, target: testbed.mount_point("target"), size, template }
    }

    /// A name that nothing else has.
    pub(crate) fn scratch_file(&self) -> PathBuf {
        self.directory.join("scratch")
    }

    fn image(&self) -> PathBuf {
        self.directory.join("image")
    }

    pub(crate) fn lifecycle(&self, kind: Kind, watch: &mut Stopwatch) {
        self.create(kind, &mut watch.steps("create"));
        let device = self.stage(kind, &mut watch.steps("stage"));
        self.publish(kind, &device, &mut watch.steps("publish"));
        self.unpublish(kind, &mut watch.steps("unpublish"));
        self.unstage(kind, &device, &mut watch.steps("unstage"));
        self.delete(&mut watch.steps("delete"));
    }

    /// A volume for mount is born with its filesystem.
    fn create(&self, kind: Kind, steps: &mut Steps<'_>) {
        let temporary = self.directory.join("new");
        let file = steps.run(OPEN, || create_sized(&temporary, self.size));
        match kind {
            Kind::Block => steps.run(FSYNC, || file.sync_all().expect("sync")),
            Kind::Mount => steps.run(FROM_TEMPLATE, || self.template.copy_to(&file)),
        }
        put_in_place(&temporary, &self.image(), steps);
    }

    fn stage(&self, kind: Kind, steps: &mut Steps<'_>) -> LoopDevice {
        let device = steps.run(CONFIGURE, || attach(&self.image(), self.size));
        match kind {
            Kind::Block => {}
            Kind::Mount => steps.run(MOUNT, || mount_ext4(&device.path(), &self.staging)),
        }
        device
    }

    fn publish(&self, kind: Kind, device: &LoopDevice, steps: &mut Steps<'_>) {
        let device = device.path();
        steps.run(BIND, || {
            let source = match kind {
                Kind::Block => {
                    File::create_new(&self.target).expect("make the target");
                    device.as_path()
                }
                Kind::Mount => {
                    std::fs::create_dir(&self.target).expect("make the target");
                    self.staging.as_path()
                }
            };
            mounts::bind(source, &self.target, BindAccess::ReadWrite).expect("bind");
        });
    }

    fn unpublish(&self, kind: Kind, steps: &mut Steps<'_>) {
        steps.run(UNBIND, || {
            unmount(&self.target, UnmountFlags::NOFOLLOW).expect("unmount the target");
            match kind {
                Kind::Block => std::fs::remove_file(&self.target),
                Kind::Mount => std::fs::remove_dir(&self.target),
            }
            .expect("remove the target");
        });
    }

    fn unstage(&self, kind: Kind, device: &LoopDevice, steps: &mut Steps<'_>) {
        match kind {
            Kind::Block => {}
            Kind::Mount => steps.run(UNMOUNT, || {
                unmount(&self.staging, UnmountFlags::NOFOLLOW).expect("unmount");
            }),
        }
        steps.run(CLEAR, || detach(device));
    }

    fn delete(&self, steps: &mut Steps<'_>) {
        steps.run(UNLINK, || std::fs::remove_file(self.image()).expect("unlink"));
        steps.run(FSYNC_DIRECTORY, || file::sync_dir(&self.directory).expect("sync"));
    }

    /// What formatting costs where there is no template.
    pub(crate) fn mkfs(&self, watch: &mut Stopwatch) {
        let path = self.directory.join("formatted");
        drop(create_sized(&path, self.size));
        watch.run(MKFS, || template::mkfs(&path));
        std::fs::remove_file(&path).expect("unlink");
    }

    /// A durable copy that shares its extents with the source; gone again afterwards.
    pub(crate) fn copy(&self, source: &File, operation: &'static str, watch: &mut Stopwatch) {
        let mut steps = watch.steps(operation);
        let temporary = self.directory.join("new");
        let file = steps.run(OPEN, || create_sized(&temporary, 0));
        steps.run(CLONE, || clone(source, &file));
        steps.run(FSYNC, || file.sync_all().expect("sync"));
        put_in_place(&temporary, &self.image(), &mut steps);
        drop(steps);
        std::fs::remove_file(self.image()).expect("unlink");
    }

    /// As [`Self::copy`], where the filesystem keeps the order of what is done.
    pub(crate) fn copy_by_one_fsync(&self, source: &File, watch: &mut Stopwatch) {
        let temporary = self.directory.join("new");
        watch.run(COPY_BY_ONE_FSYNC, || {
            clone(source, &create_sized(&temporary, 0));
            std::fs::rename(&temporary, self.image()).expect("rename");
            file::sync_dir(&self.directory).expect("sync");
        });
        std::fs::remove_file(self.image()).expect("unlink");
    }
}

fn put_in_place(temporary: &Path, path: &Path, steps: &mut Steps<'_>) {
    steps.run(RENAME, || std::fs::rename(temporary, path).expect("rename"));
    let parent = path.parent().expect("a parent");
    steps.run(FSYNC_DIRECTORY, || file::sync_dir(parent).expect("sync"));
}

pub(crate) fn create_sized(path: &Path, bytes: u64) -> File {
    let options = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let file = options.expect("create a file");
    file::set_length(&file, bytes).expect("set its length");
    file
}

pub(crate) fn clone(source: &File, target: &File) {
    let outcome = file::try_clone_file(source, target).expect("share extents");
    assert_eq!(outcome, CloneOutcome::Shared, "the filesystem does not share extents");
}

pub(crate) fn attach(image: &Path, size: u64) -> LoopDevice {
    let options = AttachOptions { label: LABEL, read_only: false, size };
    loopdev::attach(image, &options).expect("attach a loop device")
}

pub(crate) fn detach(device: &LoopDevice) {
    loopdev::ensure_detached(device, LABEL).expect("detach a loop device");
}

fn mount_ext4(device: &Path, target: &Path) {
    let mount = FsMount { device, fs_type: "ext4", options: &[], read_only: false };
    mounts::mount_filesystem(&mount, target).expect("mount");
}

/// As many durable, empty images as `threads` can make, at the same time and in one directory.
pub(crate) fn creations(directory: &Path, count: u64, threads: u64, bytes: u64) -> Duration {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for number in (thread..count).step_by(usize::try_from(threads).unwrap_or(1)) {
                    let temporary = directory.join(format!("new-{number}"));
                    let file = create_sized(&temporary, bytes);
                    file.sync_all().expect("sync");
                    std::fs::rename(&temporary, directory.join(number.to_string()))
                        .expect("rename");
                    file::sync_dir(directory).expect("sync");
                }
            });
        }
    });
    let took = began.elapsed();
    for number in 0..count {
        std::fs::remove_file(directory.join(number.to_string())).expect("unlink");
    }
    took
}

/// What a list cannot do without, if it is to tell that the data is there.
pub(crate) fn look_at_all(volumes: &Path) {
    for volume in std::fs::read_dir(volumes).expect("list the volumes") {
        let data = volume.expect("list the volumes").path().join("data");
        std::fs::symlink_metadata(data).expect("look at a volume's data");
    }
}

/// What a start cannot do without.
pub(crate) fn read_all(volumes: &Path) {
    for volume in std::fs::read_dir(volumes).expect("list the volumes") {
        let volume = volume.expect("list the volumes").path();
        std::fs::read(volume.join("record.json")).expect("read a record");
        std::fs::symlink_metadata(volume.join("data")).expect("look at a volume's data");
    }
}

/// Writes data of which no two blocks are the same. It compresses well, which suits a driver that
/// packs its snapshots.
pub(crate) fn fill(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = file.expect("open what is to be filled");
    let mut chunk = vec![0; CHUNK];
    let mut offset = 0;
    while offset < bytes {
        for (number, block) in (0_u64..).zip(chunk.chunks_exact_mut(BLOCK)) {
            let stamp = (offset / 4096 + number + 1).to_le_bytes();
            block.copy_from_slice(&stamp.repeat(BLOCK / 8));
        }
        file.write_all_at(&chunk, offset).expect("write");
        offset += 1 << 20;
    }
    file.sync_all().expect("sync what was filled");
}

/// Fills it with the extents of `seed`, again and again: quick, and takes no room.
pub(crate) fn fill_sharing(path: &Path, bytes: u64, seed: &File) {
    let file = OpenOptions::new().write(true).open(path).expect("open what is to be filled");
    let whole = seed.metadata().expect("look at the seed").len();
    let mut to = 0;
    while to < bytes {
        let mut from = to % whole;
        let piece = usize::try_from((whole - from).min(bytes - to)).expect("a size in memory");
        // Within one XFS it shares what is aligned to its blocks.
        let done = copy_file_range(seed, Some(&mut from), &file, Some(&mut to), piece);
        assert!(done.expect("share extents") > 0, "nothing was shared");
    }
    file.sync_all().expect("sync what was filled");
}

/// A file that was filled through a loop device, so that its extents are as a volume's.
pub(crate) fn filled_image(path: &Path, bytes: u64) -> File {
    let file = create_sized(path, bytes);
    let device = attach(path, bytes);
    fill(&device.path(), bytes);
    detach(&device);
    file
}
