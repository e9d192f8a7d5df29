//! Who keeps a device from being detached, as far as that can be seen from here.

use std::fs;
use std::path::Path;

use super::LoopDevice;
use crate::mounts::mountinfo;

/// The first that is found. A mount namespace that was copied while a device was mounted keeps the
/// mount, whoever unmounts it elsewhere; so that is looked for in every process.
pub fn user_of(device: &LoopDevice) -> Option<String> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let number = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let use_of_it = use_by(&entry.path(), device)?;
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        Some(format!("process {number} ({}) {use_of_it}", name.trim_end()))
    })
}

/// Nothing is told of a process that has ended, or that may not be looked at.
fn use_by(process: &Path, device: &LoopDevice) -> Option<String> {
    let path = device.path();
    let mut opened = fs::read_dir(process.join("fd")).ok()?.flatten();
    if opened.any(|file| fs::read_link(file.path()).is_ok_and(|target| target == path)) {
        return Some("has it open".to_owned());
    }
    let numbers = device.device_number().ok()?;
    let mounts = mountinfo::parse(&fs::read(process.join("mountinfo")).ok()?);
    let mount = mounts.into_iter().find(|mount| (mount.major, mount.minor) == numbers)?;
    Some(format!("sees it mounted at {}", mount.mount_point.display()))
}
