//! A disk that hangs when it is read: a FUSE mount whose server never answers.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, unmount,
};

/// What asks it waits until this is dropped.
pub struct SilentMount {
    point: PathBuf,
    _server: File,
}

impl SilentMount {
    /// Hides what is in the directory.
    pub fn over(directory: &Path) -> Self {
        let server = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
        let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).expect("open fuse");
        let descriptor = server.as_raw_fd().to_string();
        let options =
            [("fd", &*descriptor), ("rootmode", "40000"), ("user_id", "0"), ("group_id", "0")];
        for (key, value) in options {
            fsconfig_set_string(&context, key, value).expect("set an option");
        }
        fsconfig_create(&context).expect("make the filesystem");
        let attributes = MountAttrFlags::empty();
        let tree = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).expect("a mount");
        let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tree, "", CWD, directory, by_descriptor).expect("mount it");
        Self { point: directory.to_owned(), _server: server }
    }
}

impl Drop for SilentMount {
    fn drop(&mut self) {
        let _ = unmount(&self.point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}
