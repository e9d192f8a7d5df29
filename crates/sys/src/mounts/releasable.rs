//! Mounts that a program does not need, and which a mount namespace of its own would keep busy.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{MountEntry, all_mounts};
use crate::error::Result;

/// What any program may need to run, and to find its device.
const NEEDED: [&str; 8] = ["/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/usr"];
/// The kernel asks these for each name below their mount points, and their servers may hang.
const ASKING_A_SERVER: [&str; 8] = ["9p", "afs", "ceph", "cifs", "fuse", "nfs", "smb3", "virtiofs"];

/// The mount points of filesystems on loop devices and of exported images, the last mounted first. A copy of
/// such a mount keeps the filesystem in use, and with it the device, after it was unmounted on the machine. The
/// mounts that lead to the `used` files, whose paths have no links in them, are not among them.
pub(crate) fn releasable(used: &[PathBuf]) -> Result<Vec<CString>> {
    Ok(choose(&all_mounts()?, used))
}

fn choose(mounts: &[MountEntry], used: &[PathBuf]) -> Vec<CString> {
    let asking: Vec<&Path> =
        mounts.iter().filter(|mount| asks_a_server(mount)).map(point).collect();
    let is_releasable = |mount: &&MountEntry| {
        let point = point(mount);
        (mount.source.starts_with("/dev/loop") || is_fuse(mount))
            && !NEEDED
                .iter()
                .any(|path| Path::new(path).starts_with(point) || point.starts_with(path))
            && !used.iter().any(|file| file.starts_with(point))
            && !asking.iter().any(|server| *server != point && point.starts_with(server))
    };
    let released = mounts.iter().rev().filter(is_releasable);
    released.filter_map(|mount| CString::new(point(mount).as_os_str().as_bytes()).ok()).collect()
}

fn point(mount: &MountEntry) -> &Path {
    &mount.mount_point
}

fn is_fuse(mount: &MountEntry) -> bool {
    mount.fs_type == "fuse" || mount.fs_type.starts_with("fuse.")
}

fn asks_a_server(mount: &MountEntry) -> bool {
    ASKING_A_SERVER.iter().any(|kind| mount.fs_type.starts_with(kind))
}

#[cfg(test)]
mod tests;
