//! What btrfs alone can be asked for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, opcode};

use super::{fill, send};

const BTRFS_IOC_RESIZE: Opcode = opcode::write::<VolumeArgs>(0x94, 3);
const BTRFS_IOC_SUBVOL_CREATE: Opcode = opcode::write::<VolumeArgs>(0x94, 14);
const BTRFS_IOC_SNAP_DESTROY: Opcode = opcode::write::<VolumeArgs>(0x94, 15);
const BTRFS_IOC_SNAP_CREATE_V2: Opcode = opcode::write::<SnapshotArgs>(0x94, 23);
const BTRFS_IOC_DEV_INFO: Opcode = opcode::read_write::<DeviceInfo>(0x94, 30);

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

#[repr(C)]
struct DeviceInfo {
    device_id: u64,
    uuid: [u8; 16],
    bytes_used: u64,
    total_bytes: u64,
    unused: [u64; 379],
    path: [u8; 1024],
}

const _: () = {
    assert!(size_of::<VolumeArgs>() == 4096);
    assert!(size_of::<SnapshotArgs>() == 4096);
    assert!(size_of::<DeviceInfo>() == 4096);
};

/// The size that the filesystem uses of the first device.
pub(crate) fn btrfs_device_bytes(mount_root: impl AsFd) -> Result<u64> {
    let mut info = DeviceInfo {
        device_id: 1,
        uuid: [0; 16],
        bytes_used: 0,
        total_bytes: 0,
        unused: [0; 379],
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
