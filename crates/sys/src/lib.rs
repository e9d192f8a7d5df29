//! Kernel calls and host tools.
//!
//! This crate knows files, loop devices, device-mapper, mounts, filesystems, cgroups and Ceph; it knows nothing of
//! volumes, pools or CSI. It is the only crate that starts programs and the only one that holds
//! `unsafe`, all of it in `abi` and `ceph`, behind functions that are safe to call.
//!
//! Every function blocks, and says in its error which operation failed on which path.

#![allow(
    unsafe_code,
    reason = "ioctls, mount_setattr, pre_exec and librbd have no safe wrapper elsewhere"
)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod abi;
pub mod btrfs;
pub mod ceph;
pub mod cgroup_io;
pub mod checksum;
mod crash;
pub mod crypt;
pub mod dependent;
pub mod descriptors;
pub mod device_lock;
pub mod device_mapper;
mod error;
pub mod extents;
pub mod file;
pub mod filesystem;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod inherited;
pub mod loopdev;
pub mod malloc;
pub mod mounts;
pub mod ownership;
pub mod privilege;
pub mod process_usage;
pub mod rand;
pub mod rbd_export;
mod resolve;
#[cfg(test)]
mod testbed;
pub mod thaw_helper;
pub mod thin_pool;
pub mod tool;
mod zeroes;

pub use error::{CallError, Error, Result};
