//! Who keeps a device from being detached, as far as that can be seen from here.
//!
//! A device is known by its number: who uses it may have opened a node of another name.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use super::open_files::Filesystem;
use super::{LoopDevice, all_backed};
use crate::mounts::{MountEntry, block_device_at, mountinfo};

/// How often in a row a device was seen in use. Programs that inspect all devices, such as blkid or mkfs.btrfs, and
/// other threads of this process have each of them open for a moment.
#[derive(Default)]
pub(super) struct Sightings(u32);

impl Sightings {
    pub(super) fn is_lasting(&mut self, in_use: bool) -> bool {
        const LASTING: u32 = 3;
        self.0 = if in_use { self.0 + 1 } else { 0 };
        self.0 >= LASTING
    }
}

/// The first that is found. A mount namespace that was copied while a device was mounted keeps the
/// mount, even if it is unmounted elsewhere; so that is looked for in every process.
pub fn user_of(device: &LoopDevice) -> Option<String> {
    find_user(device, &mut HashSet::new())
}

/// As [`user_of`], but for what is mounted in this process's own mount namespace.
pub fn user_elsewhere(device: &LoopDevice) -> Option<String> {
    let own = mounts_of(Path::new("/proc/self"));
    find_user(device, &mut own.into_iter().map(|mount| mount.id).collect())
}

/// `seen`: mounts that need no further check. A process that has it open is reported first, because that is what an
/// operator has to end.
fn find_user(device: &LoopDevice, seen: &mut HashSet<u64>) -> Option<String> {
    find_user_of(device.device_number().ok()?, &device.name(), seen)
}

/// As [`user_of`], of any block device.
pub fn user_of_number(major: u32, minor: u32) -> Option<String> {
    let name = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    find_user_of((major, minor), name.file_name()?.to_str()?, &mut HashSet::new())
}

/// `name`: the kernel's for the device.
fn find_user_of(number: (u32, u32), name: &str, seen: &mut HashSet<u64>) -> Option<String> {
    let filesystem = Filesystem::on(number, name);
    let has_files_open = |process: &Path| filesystem.is_open_in(process);
    first_process(|process| has_open(process, number).then(|| "has it open".to_owned()))
        .or_else(|| first_process(|process| mounted_for(process, number, seen)))
        .or_else(|| first_process(|process| has_files_open(process).then(|| OPEN.to_owned())))
        .or_else(|| use_by_device(number))
}

const OPEN: &str = "has files open in it, in a mount that was detached with 'umount --lazy'";

/// Nothing is reported of a process that has ended, or that this one may not inspect.
pub(crate) fn first_process(mut use_by: impl FnMut(&Path) -> Option<String>) -> Option<String> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let id = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let use_of_it = use_by(&entry.path())?;
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        Some(format!("process {id} ({}) {use_of_it}", name.trim_end()))
    })
}

/// Processes that share a namespace see the same mounts, and each copy of a mount has another id. The
/// namespaces themselves cannot be compared, which takes more rights than reading the list of mounts. To inspect
/// what is mounted takes them too; where this process lacks them, another process of the namespace may serve.
fn mounted_for(process: &Path, number: (u32, u32), seen: &mut HashSet<u64>) -> Option<String> {
    let root = process.join("root");
    let all_shown = root.read_link().is_ok();
    let mut unseen = mounts_of(process).into_iter().filter(|mount| match all_shown {
        true => seen.insert(mount.id),
        false => !seen.contains(&mount.id),
    });
    let mount = unseen.find(|mount| mount.is_of_device(number, &root))?;
    Some(format!("sees it mounted at {}", mount.mount_point.display()))
}

fn mounts_of(process: &Path) -> Vec<MountEntry> {
    mountinfo::parse(&fs::read(process.join("mountinfo")).unwrap_or_default())
}

/// The node may be bound at any path, or be one that a container runtime made; so each open
/// file is inspected, except those on filesystems that may not answer.
fn has_open(process: &Path, number: (u32, u32)) -> bool {
    let Ok(opened) = fs::read_dir(process.join("fd")) else { return false };
    let remote = remote_mounts(process);
    opened.flatten().any(|file| {
        let Ok(target) = fs::read_link(file.path()) else { return false };
        target.is_absolute()
            && !is_below(&target, &remote)
            && block_device_at(&file.path()) == Some(number)
    })
}

pub(crate) fn remote_mounts(process: &Path) -> Vec<MountEntry> {
    mounts_of(process).into_iter().filter(MountEntry::is_remote).collect()
}

pub(crate) fn is_below(file: &Path, mounts: &[MountEntry]) -> bool {
    mounts.iter().any(|mount| file.starts_with(&mount.mount_point))
}

/// The kernel itself: another loop device (kubelet attaches one to each raw volume), or one of the
/// device mapper.
fn use_by_device(number: (u32, u32)) -> Option<String> {
    let on_it = all_backed().ok()?.into_iter();
    let remote = remote_mounts(Path::new("/proc/self"));
    let mut on_it = on_it.filter(|other| {
        !is_below(&other.file, &remote) && block_device_at(&other.file) == Some(number)
    });
    if let Some(other) = on_it.next() {
        return Some(format!("{} is built on it", other.device.path().display()));
    }
    let holders = format!("/sys/dev/block/{}:{}/holders", number.0, number.1);
    let holder = fs::read_dir(holders).ok()?.flatten().next()?;
    Some(format!("{} is built on it", holder.file_name().to_string_lossy()))
}

#[cfg(test)]
mod tests;
