//! Which mounts lead to a block device: those of its filesystem, and those of a node that is bound.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use super::MountEntry;

/// Filesystems of other machines or processes, which may not answer. They hold no device nodes.
const REMOTE: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs", "autofs"];

impl MountEntry {
    /// Could an access to what is mounted there wait for another machine or process?
    pub(crate) fn is_remote(&self) -> bool {
        self.fs_type.starts_with("fuse") || REMOTE.contains(&self.fs_type.as_str())
    }

    /// Does the mount show this device: its filesystem, or its node? `root` is where this process
    /// finds the root of the namespace that the mount is in.
    pub fn is_of_device(&self, (major, minor): (u32, u32), root: &Path) -> bool {
        self.filesystem_is_on((major, minor)) || self.binds_node((major, minor), root)
    }

    /// btrfs, which may span devices, has an anonymous number (0:N); its device is then known by the
    /// path that it was mounted from.
    fn filesystem_is_on(&self, number: (u32, u32)) -> bool {
        const ANONYMOUS: u32 = 0;
        if self.major != ANONYMOUS {
            return (self.major, self.minor) == number;
        }
        self.fs_type == "btrfs" && block_device_at(Path::new(&self.source)) == Some(number)
    }

    /// A node is no root of a filesystem, so a mount of one shows a file of some other filesystem:
    /// that of /dev, of a container's copy of it, or any that has nodes.
    pub fn binds_node(&self, number: (u32, u32), root: &Path) -> bool {
        if self.root == Path::new("/") || self.is_remote() {
            return false;
        }
        // Known without the mount point, which another mount may hide: the kernel itself names
        // the nodes there.
        if self.fs_type == "devtmpfs" && self.root == devtmpfs_path(number) {
            return true;
        }
        let point = self.mount_point.strip_prefix("/").unwrap_or(&self.mount_point);
        block_device_at(&root.join(point)) == Some(number)
    }
}

fn devtmpfs_path((major, minor): (u32, u32)) -> std::path::PathBuf {
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap_or_default();
    Path::new("/").join(link.file_name().unwrap_or_default())
}

/// Major and minor number of the device whose node is at the path. What the kernel has in memory is
/// enough, so a filesystem that does not answer is not waited for.
pub(crate) fn block_device_at(path: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let there = statx(CWD, path, flags, StatxFlags::TYPE).ok()?;
    let is_device = FileType::from_raw_mode(there.stx_mode.into()) == FileType::BlockDevice;
    is_device.then_some((there.stx_rdev_major, there.stx_rdev_minor))
}
