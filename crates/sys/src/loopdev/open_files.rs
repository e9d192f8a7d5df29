//! Files that are open in mounts that were detached with `umount --lazy`.
//!
//! Such a mount, and its filesystem, lives on without a mount point until its files are closed. No list of mounts
//! shows it.

use std::collections::HashSet;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, fstatvfs, open, statx};

use crate::mounts::mountinfo;

/// The filesystem on a device, as its files show it.
pub(super) struct Filesystem {
    number: (u32, u32),
    /// Of btrfs, whose files have no device's number: the first half of what `statfs` tells.
    btrfs: Option<u32>,
}

impl Filesystem {
    /// `name`: the kernel's for the device.
    pub(super) fn on(number: (u32, u32), name: &str) -> Self {
        Self { number, btrfs: btrfs_on(name) }
    }

    /// Only files that are in no listed mount are inspected: a file that another process or machine serves might not
    /// answer.
    pub(super) fn is_open_in(&self, process: &Path) -> bool {
        let Ok(mounts) = fs::read(process.join("mountinfo")) else { return false };
        let placed: HashSet<u64> =
            mountinfo::parse(&mounts).into_iter().map(|mount| mount.id).collect();
        let opened = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let opened = opened.map(|entry| entry.path());
        let own = ["cwd", "root"].map(|name| process.join(name));
        opened.chain(own).any(|link| self.holds(&link, &placed))
    }

    fn holds(&self, link: &Path, placed: &HashSet<u64>) -> bool {
        // Pipes, sockets and the like.
        if !fs::read_link(link).is_ok_and(|target| target.is_absolute()) {
            return false;
        }
        let Ok(file) = open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
            return false;
        };
        mount_id(&file).is_some_and(|id| !placed.contains(&id)) && self.has(&file)
    }

    /// A network or FUSE mount that was unmounted lazily because its server is dead is in no list
    /// either, so the file is asked for nothing that the kernel does not have in memory.
    fn has(&self, file: &OwnedFd) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let Ok(stat) = statx(file, "", flags, StatxFlags::empty()) else { return false };
        if (stat.stx_dev_major, stat.stx_dev_minor) == self.number {
            return true;
        }
        let first_half = |id: u64| u32::try_from(id & u64::from(u32::MAX)).ok();
        stat.stx_dev_major == 0
            && self.btrfs.is_some()
            && stat.stx_attributes_mask.contains(ATTRIBUTES_OF_BTRFS)
            && fstatvfs(file).is_ok_and(|found| first_half(found.f_fsid) == self.btrfs)
    }
}

/// btrfs has reported these since Linux 4.12. No network filesystem has all of them, nor has FUSE: such
/// a file is not asked for its filesystem's id, which the server would have to answer.
const ATTRIBUTES_OF_BTRFS: StatxAttributes = StatxAttributes::APPEND
    .union(StatxAttributes::COMPRESSED)
    .union(StatxAttributes::IMMUTABLE)
    .union(StatxAttributes::NODUMP);

fn mount_id(file: &OwnedFd) -> Option<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

/// The kernel keeps a directory for each btrfs in use, with its devices.
fn btrfs_on(device: &str) -> Option<u32> {
    let all = fs::read_dir("/sys/fs/btrfs").ok()?.flatten().map(|entry| entry.path());
    let mut on_it = all.filter(|it: &PathBuf| it.join("devices").join(device).exists());
    first_half_of_id(on_it.next()?.file_name()?.to_str()?)
}

/// As the kernel computes it from the UUID: the first and the third of its four words. The other half
/// depends on the subvolume too.
fn first_half_of_id(uuid: &str) -> Option<u32> {
    let digits: String = uuid.chars().filter(|digit| *digit != '-').collect();
    let word = |from: usize| u32::from_str_radix(digits.get(from..from + 8)?, 16).ok();
    Some(word(0)? ^ word(16)?)
}
