//! What btrfs alone can be asked for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use linux_raw_sys::btrfs::btrfs_ioctl_dev_info_args;
use linux_raw_sys::ioctl::{
    BTRFS_IOC_DEV_INFO, BTRFS_IOC_RESIZE, BTRFS_IOC_SNAP_CREATE_V2, BTRFS_IOC_SNAP_DESTROY,
    BTRFS_IOC_SUBVOL_CREATE,
};
use rustix::io::{Errno, Result};

use super::{fill, send};

const BTRFS_SUBVOL_RDONLY: u64 = 1 << 1;
/// The kernel's own limit for the name of a subvolume, less than the structures have room for.
const LONGEST_NAME: usize = 255;

#[repr(C)]
struct VolumeArgs {
    fd: i64,
    name: [u8; 4088],
}

#[repr(C)]
struct SnapshotArgs {
    fd: i64,
    transaction: u64,
    flags: u64,
    quota_inheritance: [u64; 4],
    name: [u8; 4040],
}

const _: () = {
    assert!(size_of::<VolumeArgs>() == 4096);
    assert!(size_of::<SnapshotArgs>() == 4096);
};

/// The size that the filesystem uses of the first device.
pub(crate) fn btrfs_device_bytes(mount_root: impl AsFd) -> Result<u64> {
    let mut info = btrfs_ioctl_dev_info_args {
        devid: 1,
        uuid: [0; 16],
        bytes_used: 0,
        total_bytes: 0,
        fsid: [0; 16],
        unused: [0; 377],
        path: [0; 1024],
    };
    fill::<BTRFS_IOC_DEV_INFO, _>(mount_root, &mut info)?;
    Ok(info.total_bytes)
}

/// Grows the filesystem to the end of its first device.
pub(crate) fn btrfs_grow_to_device(mount_root: impl AsFd) -> Result<()> {
    send::<BTRFS_IOC_RESIZE, _>(mount_root, VolumeArgs { fd: 0, name: terminated(b"1:max")? })
}

pub(crate) fn btrfs_create_subvolume(parent: impl AsFd, name: &[u8]) -> Result<()> {
    send::<BTRFS_IOC_SUBVOL_CREATE, _>(parent, VolumeArgs { fd: 0, name: terminated(name)? })
}

/// `name` in `parent` becomes a read-only snapshot of `source`.
pub(crate) fn btrfs_snapshot_subvolume(
    source: BorrowedFd<'_>,
    parent: impl AsFd,
    name: &[u8],
) -> Result<()> {
    let snapshot = SnapshotArgs {
        fd: i64::from(source.as_raw_fd()),
        transaction: 0,
        flags: BTRFS_SUBVOL_RDONLY,
        quota_inheritance: [0; 4],
        name: terminated(name)?,
    };
    send::<BTRFS_IOC_SNAP_CREATE_V2, _>(parent, snapshot)
}

pub(crate) fn btrfs_destroy_subvolume(parent: impl AsFd, name: &[u8]) -> Result<()> {
    send::<BTRFS_IOC_SNAP_DESTROY, _>(parent, VolumeArgs { fd: 0, name: terminated(name)? })
}

/// `name` with zeroes after it.
fn terminated<const SIZE: usize>(name: &[u8]) -> Result<[u8; SIZE]> {
    if name.len() > LONGEST_NAME {
        return Err(Errno::NAMETOOLONG);
    }
    let mut field = [0; SIZE];
    field[..name.len()].copy_from_slice(name);
    Ok(field)
}
