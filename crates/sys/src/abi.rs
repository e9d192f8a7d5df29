//! The ioctls and system calls that no crate wraps. Structures and numbers are those of linux-raw-sys,
//! except where it has none: XFS, the records of FIEMAP, arguments of btrfs with unions in them.
//!
//! All `unsafe` is here. The functions are safe for any descriptor: each ioctl passes a structure of
//! exactly the size that the kernel reads and writes, and a descriptor of the wrong kind answers
//! with an error (ENOTTY, EOPNOTSUPP).

mod btrfs;
mod child;
mod descriptors;
mod device_mapper;
mod fiemap;
mod leases;
#[cfg(target_env = "gnu")]
mod malloc;
mod pages;
mod signals;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use linux_raw_sys::general::{file_clone_range, fstrim_range, mount_attr};
use linux_raw_sys::ioctl::{
    BLKDISCARD, BLKGETSIZE64, EXT4_IOC_RESIZE_FS, FICLONERANGE, FIFREEZE, FITHAW, FITRIM,
};
use linux_raw_sys::loop_device::{
    self, LOOP_CLR_FD, LOOP_CONFIGURE, LOOP_CTL_GET_FREE, LOOP_CTL_REMOVE, LOOP_GET_STATUS64,
    LOOP_SET_CAPACITY, LOOP_SET_STATUS64, loop_config,
};
use rustix::io::{Errno, Result};
use rustix::ioctl::{
    IntegerSetter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, Updater, ioctl, opcode,
};

pub(crate) use btrfs::{
    btrfs_create_subvolume, btrfs_destroy_subvolume, btrfs_device_bytes, btrfs_grow_to_device,
    btrfs_snapshot_subvolume,
};
pub(crate) use child::{
    end_with_parent, hide_mounts, keep_open, outlive_parent, set_apart, without_core,
};
pub(crate) use descriptors::leave_shared_table;
pub(crate) use device_mapper::TargetMessage;
pub(crate) use fiemap::{
    ExtentPage, FIEMAP_EXTENT_LAST, FIEMAP_EXTENT_MERGED, FIEMAP_EXTENT_SHARED,
    FIEMAP_EXTENT_UNWRITTEN, FiemapExtent, extent_count,
};
pub(crate) use leases::{Lease, take_lease};
pub(crate) use linux_raw_sys::loop_device::loop_info64;
#[cfg(target_env = "gnu")]
pub(crate) use malloc::{M_ARENA_MAX, M_MMAP_THRESHOLD, set_heap_number, trim_heaps};
pub(crate) use pages::write_out_pages;
pub(crate) use signals::{block_signals, take_signals};

const XFS_IOC_FSGEOMETRY_V1: Opcode = opcode::read::<XfsGeometry>(b'X', 100);
const XFS_IOC_FSGROWFSDATA: Opcode = opcode::write::<XfsGrowData>(b'X', 110);

pub(crate) const LO_FLAGS_READ_ONLY: u32 = loop_device::LO_FLAGS_READ_ONLY as u32;
pub(crate) const LO_FLAGS_AUTOCLEAR: u32 = loop_device::LO_FLAGS_AUTOCLEAR as u32;
pub(crate) const LO_FLAGS_DIRECT_IO: u32 = loop_device::LO_FLAGS_DIRECT_IO as u32;

pub(crate) const NO_LOOP_INFO: loop_info64 = loop_info64 {
    lo_device: 0,
    lo_inode: 0,
    lo_rdevice: 0,
    lo_offset: 0,
    lo_sizelimit: 0,
    lo_number: 0,
    lo_encrypt_type: 0,
    lo_encrypt_key_size: 0,
    lo_flags: 0,
    lo_file_name: [0; 64],
    lo_crypt_name: [0; 64],
    lo_encrypt_key: [0; 32],
    lo_init: [0; 2],
};

#[repr(C)]
#[derive(Default)]
pub(crate) struct XfsGeometry {
    pub(crate) block_size: u32,
    pub(crate) rt_extent_size: u32,
    pub(crate) ag_blocks: u32,
    pub(crate) ag_count: u32,
    pub(crate) log_blocks: u32,
    pub(crate) sector_size: u32,
    pub(crate) inode_size: u32,
    pub(crate) inode_max_percent: u32,
    pub(crate) data_blocks: u64,
    pub(crate) rt_blocks: u64,
    pub(crate) rt_extents: u64,
    pub(crate) log_start: u64,
    pub(crate) uuid: [u8; 16],
    pub(crate) stripe_unit: u32,
    pub(crate) stripe_width: u32,
    pub(crate) version: i32,
    pub(crate) flags: u32,
    pub(crate) log_sector_size: u32,
    pub(crate) rt_sector_size: u32,
    pub(crate) directory_block_size: u32,
}

#[repr(C)]
struct XfsGrowData {
    new_blocks: u64,
    inode_max_percent: u32,
}

// A structure of another size would be another ioctl, or memory the kernel writes past.
const _: () = {
    assert!(size_of::<XfsGeometry>() == 112);
    assert!(size_of::<XfsGrowData>() == 16);
};

/// An ioctl without argument whose answer is its return value.
struct ReturnsNumber<const OPCODE: Opcode>;

// SAFETY: the kernel is given a null pointer and writes nothing; the output is the return value.
unsafe impl<const OPCODE: Opcode> Ioctl for ReturnsNumber<OPCODE> {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut rustix::ffi::c_void) -> Result<u32> {
        u32::try_from(output).map_err(|_| Errno::RANGE)
    }
}

fn command<const OPCODE: Opcode>(fd: impl AsFd) -> Result<()> {
    // SAFETY: every OPCODE used with this function ignores its argument.
    unsafe { ioctl(fd, NoArg::<OPCODE>::new()) }
}

fn send<const OPCODE: Opcode, T>(fd: impl AsFd, value: T) -> Result<()> {
    // SAFETY: every OPCODE is used with the structure its definition names, which the
    // kernel only reads, and which lives until the call returns.
    unsafe { ioctl(fd, Setter::<OPCODE, T>::new(value)) }
}

fn fill<const OPCODE: Opcode, T>(fd: impl AsFd, value: &mut T) -> Result<()> {
    // SAFETY: every OPCODE is used with the structure its definition names, or (FIEMAP) with one
    // that says itself how much room follows; all are plain integers, so any bytes the kernel
    // writes are a valid value.
    unsafe { ioctl(fd, Updater::<OPCODE, T>::new(value)) }
}

pub(crate) fn loop_control_get_free(control: impl AsFd) -> Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and returns the device's number.
    unsafe { ioctl(control, ReturnsNumber::<LOOP_CTL_GET_FREE>) }
}

/// `EBUSY` while the device is attached or open.
pub(crate) fn loop_control_remove(control: impl AsFd, number: u32) -> Result<()> {
    let number = usize::try_from(number).map_err(|_| Errno::RANGE)?;
    // SAFETY: LOOP_CTL_REMOVE takes the device's number as its argument, no pointer.
    unsafe { ioctl(control, IntegerSetter::<LOOP_CTL_REMOVE>::new_usize(number)) }
}

pub(crate) fn loop_configure(
    device: impl AsFd,
    backing: BorrowedFd<'_>,
    block_size: u32,
    info: loop_info64,
) -> Result<()> {
    let fd = u32::try_from(backing.as_raw_fd()).map_err(|_| Errno::BADF)?;
    send::<LOOP_CONFIGURE, _>(device, loop_config { fd, block_size, info, __reserved: [0; 8] })
}

pub(crate) fn loop_get_status(device: impl AsFd) -> Result<loop_info64> {
    let mut info = NO_LOOP_INFO;
    fill::<LOOP_GET_STATUS64, _>(device, &mut info)?;
    Ok(info)
}

pub(crate) fn loop_set_status(device: impl AsFd, info: loop_info64) -> Result<()> {
    send::<LOOP_SET_STATUS64, _>(device, info)
}

pub(crate) fn loop_clear(device: impl AsFd) -> Result<()> {
    command::<LOOP_CLR_FD>(device)
}

pub(crate) fn loop_set_capacity(device: impl AsFd) -> Result<()> {
    command::<LOOP_SET_CAPACITY>(device)
}

pub(crate) fn block_device_size(device: impl AsFd) -> Result<u64> {
    let mut bytes = 0_u64;
    fill::<BLKGETSIZE64, _>(device, &mut bytes)?;
    Ok(bytes)
}

/// Of a block device; `EOPNOTSUPP` if it does not do that.
pub(crate) fn discard(device: impl AsFd, start: u64, length: u64) -> Result<()> {
    send::<BLKDISCARD, _>(device, [start, length])
}

pub(crate) fn freeze(mount_root: impl AsFd) -> Result<()> {
    command::<FIFREEZE>(mount_root)
}

pub(crate) fn thaw(mount_root: impl AsFd) -> Result<()> {
    command::<FITHAW>(mount_root)
}

/// Discards all that the filesystem does not use; returns how much that was.
pub(crate) fn trim(mount_root: impl AsFd) -> Result<u64> {
    let mut range = fstrim_range { start: 0, len: u64::MAX, minlen: 0 };
    fill::<FITRIM, _>(mount_root, &mut range)?;
    Ok(range.len)
}

/// Shares `length` bytes at `offset` of `source` with the same place in `target`.
pub(crate) fn clone_range(
    source: BorrowedFd<'_>,
    target: impl AsFd,
    offset: u64,
    length: u64,
) -> Result<()> {
    let range = file_clone_range {
        src_fd: i64::from(source.as_raw_fd()),
        src_offset: offset,
        src_length: length,
        dest_offset: offset,
    };
    send::<FICLONERANGE, _>(target, range)
}

pub(crate) fn ext4_resize(mount_root: impl AsFd, blocks: u64) -> Result<()> {
    send::<EXT4_IOC_RESIZE_FS, _>(mount_root, blocks)
}

pub(crate) fn xfs_geometry(mount_root: impl AsFd) -> Result<XfsGeometry> {
    let mut geometry = XfsGeometry::default();
    fill::<XFS_IOC_FSGEOMETRY_V1, _>(mount_root, &mut geometry)?;
    Ok(geometry)
}

pub(crate) fn xfs_grow(
    mount_root: impl AsFd,
    new_blocks: u64,
    inode_max_percent: u32,
) -> Result<()> {
    send::<XFS_IOC_FSGROWFSDATA, _>(mount_root, XfsGrowData { new_blocks, inode_max_percent })
}

/// Makes a mount, attached anywhere or not yet, read-only. Linux 5.12.
pub(crate) fn set_mount_read_only(mount: BorrowedFd<'_>) -> Result<()> {
    let attributes =
        mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is a terminated string and `attributes` a structure of the size given;
    // the kernel reads both and keeps neither.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(&attributes),
            size_of::<mount_attr>(),
        )
    };
    if answer == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
