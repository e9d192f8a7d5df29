//! /etc/fstab: where the operator wants filesystems to be.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::{MountEntry, all_mounts, mount_at, mountinfo};
use crate::error::{Context, Result};

const FSTAB: &str = "/etc/fstab";
/// As in the kernel.
const MAX_LINKS: usize = 40;

/// The mount point at or above `path` that fstab has a filesystem for, and at which none is mounted
/// now. One that is mounted at its first use counts as mounted.
pub fn unmounted_above(path: &Path) -> Result<Option<PathBuf>> {
    let fstab = Path::new(FSTAB);
    match fs::read(fstab) {
        Ok(text) => unmounted_in(&text, path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).on("read", fstab),
    }
}

fn unmounted_in(fstab: &[u8], path: &Path) -> Result<Option<PathBuf>> {
    let remote = all_mounts()?.into_iter().filter(MountEntry::is_remote);
    let remote: HashSet<_> = remote.map(|mount| mount.mount_point).collect();
    let path = resolved(path, &HashSet::new());
    let above = mount_points(fstab).map(|point| resolved(&point, &remote));
    for point in above.filter(|point| path.starts_with(point)) {
        if mount_at(&point)?.is_none() {
            return Ok(Some(point));
        }
    }
    Ok(None)
}

/// Without `/`, which is always mounted, and without what is mounted nowhere, such as swap.
fn mount_points(fstab: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    let lines = fstab.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let points = lines.filter(|line| !line.starts_with(b"#")).filter_map(|line| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        fields.nth(1).map(mountinfo::path)
    });
    points.filter(|point| point.is_absolute() && point.as_os_str() != "/")
}

/// Links in what exists of the path are followed; the rest is taken as it is, and so is what is at and
/// below a mount in `untouched`, whose server may not answer.
fn resolved(path: &Path, untouched: &HashSet<PathBuf>) -> PathBuf {
    let mut real = PathBuf::from("/");
    let mut rest = reversed(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        real.push(&name);
        if untouched.contains(&real) {
            real.extend(rest.into_iter().rev());
            return real;
        }
        let Ok(target) = fs::read_link(&real) else { continue };
        links += 1;
        if links > MAX_LINKS {
            return path.to_owned();
        }
        if target.is_absolute() {
            real = PathBuf::from("/");
        } else {
            real.pop();
        }
        rest.extend(reversed(&target));
    }
    real
}

/// The names in the path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests;
