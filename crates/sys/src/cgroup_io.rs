//! Limits on the I/O of a cgroup to a device.
//!
//! The kernel keeps a limit with the device's number until the limit is removed. A loop device that is
//! detached and attached again to another file still has it.

mod files;
mod new_groups;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::error::{Context, Error, Result};
use crate::mounts::{MountEntry, all_mounts};
use files::{WriteOutcome, read_words, subgroups, write_line};
pub use new_groups::{NewGroups, Stop};

/// `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub read_iops: Option<u64>,
    pub write_iops: Option<u64>,
    pub read_bytes_per_second: Option<u64>,
    pub write_bytes_per_second: Option<u64>,
}

impl Limits {
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// Where limits are set: one group, below which the workloads run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IoController {
    /// cgroup v2: a group's limit holds for all below it. The root has none, so there it is set
    /// on each of its children.
    V2 { mount: PathBuf, group: PathBuf },
    /// cgroup v1: a group's limit holds for its own processes only, so it is set on all below.
    /// Groups made later have none until they get it: see [`IoController::group_to_follow`].
    V1 { mount: PathBuf, group: PathBuf },
}

impl IoController {
    /// `group` is a path below the hierarchy's root: "/", "kubepods", "kubepods.slice/x".
    /// `Ok(None)` if this host has no way to limit I/O; a group that does not exist is an error.
    pub fn detect(group: &str) -> Result<Option<Self>> {
        Self::detect_among(&all_mounts()?, group)
    }

    /// As [`Self::detect`], and changes nothing: the controller is not passed on to the group.
    pub fn check(group: &str) -> Result<()> {
        Self::find_among(&all_mounts()?, group).map(drop)
    }

    fn detect_among(mounts: &[MountEntry], group: &str) -> Result<Option<Self>> {
        let found = Self::find_among(mounts, group)?;
        if let Some(Self::V2 { mount, group }) = &found {
            ensure_io_delegated(mount, group)?;
        }
        Ok(found)
    }

    fn find_among(mounts: &[MountEntry], group: &str) -> Result<Option<Self>> {
        // A container often sees its cgroups read-only: then nothing can be limited from here.
        let writable = || mounts.iter().filter(|entry| !entry.read_only());
        let unified = writable().filter(|entry| entry.fs_type == "cgroup2");
        for mount in unified.map(|entry| entry.mount_point.clone()) {
            if read_words(&mount.join("cgroup.controllers"))?.iter().any(|name| name == "io") {
                let group = existing_group(&mount, group)?;
                return Ok(Some(Self::V2 { mount, group }));
            }
        }
        let has_blkio = |entry: &&MountEntry| {
            entry.fs_type == "cgroup" && entry.super_options.iter().any(|name| name == "blkio")
        };
        match writable().find(has_blkio).map(|entry| entry.mount_point.clone()) {
            Some(mount) => {
                let group = existing_group(&mount, group)?;
                Ok(Some(Self::V1 { mount, group }))
            }
            None => Ok(None),
        }
    }

    /// Sets all four limits for the device. Setting them again, or taking away what is not there,
    /// is fine, and so is a group that disappears at the same time.
    pub fn apply(&self, major: u32, minor: u32, limits: &Limits) -> Result<()> {
        match self {
            Self::V2 { mount, group } => {
                let line = unified_line(major, minor, limits);
                let groups = if group == mount { subgroups(mount)? } else { vec![group.clone()] };
                for group in groups {
                    write_limit(&group, "io.max", &line, limits)?;
                }
            }
            Self::V1 { group, .. } => {
                let mut pending = vec![group.clone()];
                while let Some(group) = pending.pop() {
                    for (file, limit) in legacy_files(limits) {
                        let line = format!("{major}:{minor} {}", limit.unwrap_or(0));
                        write_limit(&group, file, &line, limits)?;
                    }
                    pending.extend(subgroups(&group)?);
                }
            }
        }
        Ok(())
    }

    /// Below which [`NewGroups`] have to be limited one by one. `None` where a limit holds for them
    /// by itself.
    pub fn group_to_follow(&self) -> Option<&Path> {
        match self {
            Self::V1 { group, .. } => Some(group),
            Self::V2 { .. } => None,
        }
    }

    /// Of cgroup v1: what holds in the group above all workloads.
    pub fn limits_of(&self, major: u32, minor: u32) -> Limits {
        let Some(group) = self.group_to_follow() else {
            return Limits::default();
        };
        let device = format!("{major}:{minor} ");
        let [read_bytes_per_second, write_bytes_per_second, read_iops, write_iops] =
            legacy_files(&Limits::default()).map(|(file, _)| {
                let text = std::fs::read_to_string(group.join(file)).unwrap_or_default();
                text.lines().find_map(|line| line.strip_prefix(&device)?.trim().parse().ok())
            });
        Limits { read_iops, write_iops, read_bytes_per_second, write_bytes_per_second }
    }

    /// Devices that have a limit now, by major and minor number.
    pub fn limited_devices(&self) -> Result<BTreeSet<(u32, u32)>> {
        let mut devices = BTreeSet::new();
        match self {
            Self::V2 { mount, group } => {
                let groups = if group == mount { subgroups(mount)? } else { vec![group.clone()] };
                for group in groups {
                    devices.extend(devices_named_in(&group.join("io.max")));
                }
            }
            Self::V1 { group, .. } => {
                let mut pending = vec![group.clone()];
                while let Some(group) = pending.pop() {
                    for (file, _) in legacy_files(&Limits::default()) {
                        devices.extend(devices_named_in(&group.join(file)));
                    }
                    pending.extend(subgroups(&group)?);
                }
            }
        }
        Ok(devices)
    }
}

/// Of cgroup v1, for a group that was just made and so has no limits yet. A group that is gone, and a
/// device that is, need none.
pub fn limit_new_group(group: &Path, major: u32, minor: u32, limits: &Limits) -> Result<()> {
    for (file, limit) in legacy_files(limits) {
        if let Some(limit) = limit {
            write_line(group, file, &format!("{major}:{minor} {limit}"))?;
        }
    }
    Ok(())
}

/// The first word of each line. A group that has no such file, or is gone, names none.
fn devices_named_in(file: &Path) -> Vec<(u32, u32)> {
    devices_named(&std::fs::read_to_string(file).unwrap_or_default())
}

pub(crate) fn devices_named(text: &str) -> Vec<(u32, u32)> {
    let number = |line: &str| {
        let (major, minor) = line.split_whitespace().next()?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    text.lines().filter_map(number).collect()
}

/// Missing is the file, not the group, where the controller is off: then there is nothing to set.
fn write_limit(group: &Path, file: &str, line: &str, limits: &Limits) -> Result<()> {
    match write_line(group, file, line)? {
        WriteOutcome::Done | WriteOutcome::GroupGone => Ok(()),
        WriteOutcome::NoSuchFile => {
            tracing::debug!(group = %group.display(), file, "cannot set I/O limits in this cgroup");
            Ok(())
        }
        // Limits of a device that is gone are gone with it.
        WriteOutcome::NoSuchDevice if limits.is_unlimited() => Ok(()),
        WriteOutcome::NoSuchDevice => Err(Errno::NODEV).on("limit the I/O in", group),
    }
}

fn unified_line(major: u32, minor: u32, limits: &Limits) -> String {
    let value = |limit: Option<u64>| limit.map_or("max".to_owned(), |limit| limit.to_string());
    format!(
        "{major}:{minor} rbps={} wbps={} riops={} wiops={}",
        value(limits.read_bytes_per_second),
        value(limits.write_bytes_per_second),
        value(limits.read_iops),
        value(limits.write_iops),
    )
}

fn legacy_files(limits: &Limits) -> [(&'static str, Option<u64>); 4] {
    [
        ("blkio.throttle.read_bps_device", limits.read_bytes_per_second),
        ("blkio.throttle.write_bps_device", limits.write_bytes_per_second),
        ("blkio.throttle.read_iops_device", limits.read_iops),
        ("blkio.throttle.write_iops_device", limits.write_iops),
    ]
}

fn existing_group(mount: &Path, group: &str) -> Result<PathBuf> {
    const OPERATION: &str = "find the workload cgroup";
    let relative = Path::new(group.trim_matches('/'));
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    let path = mount.join(relative);
    if !plain {
        return Err(Error::refused(OPERATION, &path, "not a path below the root cgroup"));
    }
    if relative.as_os_str().is_empty() {
        return Ok(mount.to_owned());
    }
    if path.is_dir() { Ok(path) } else { Err(Errno::NOENT).on(OPERATION, &path) }
}

/// A group has io.max only if every group above it passes the io controller on.
fn ensure_io_delegated(mount: &Path, group: &Path) -> Result<()> {
    let mut above: Vec<&Path> =
        group.ancestors().skip(1).take_while(|path| path.starts_with(mount)).collect();
    above.reverse();
    if group == mount {
        above = vec![mount];
    }
    for ancestor in above {
        let control = ancestor.join("cgroup.subtree_control");
        if !read_words(&control)?.iter().any(|name| name == "io") {
            OpenOptions::new()
                .write(true)
                .open(&control)
                .and_then(|mut file| file.write_all(b"+io"))
                .effect_on("enable the io controller in", &control)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
