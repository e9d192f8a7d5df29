//! /etc/fstab: where the operator wants filesystems to be.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::{MountEntry, all_mounts, mount_at, mountinfo};
use crate::error::{Context, Result};

const FSTAB: &str = "/etc/fstab";
/// As many as the kernel follows (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// The mount point at or above `path` that fstab names and at which nothing is mounted now. An automount
/// point, whose filesystem is mounted at its first use, counts as mounted.
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
    let path = resolve_links(path, &HashSet::new());
    let points = mount_points(fstab).map(|point| resolve_links(&point, &remote));
    for point in points.filter(|point| path.starts_with(point)) {
        if mount_at(&point)?.is_none() {
            return Ok(Some(point));
        }
    }
    Ok(None)
}

/// Without `/`, which is always mounted, and without entries that have no mount point, such as swap.
fn mount_points(fstab: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    let lines = fstab.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let points = lines.filter(|line| !line.starts_with(b"#")).filter_map(|line| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        fields.nth(1).map(mountinfo::path)
    });
    points.filter(|point| point.is_absolute() && point.as_os_str() != "/")
}

/// Follows symbolic links as far as the path exists. At a mount in `remote`, whose server may not answer, it
/// stops and keeps the rest of the path as it is.
fn resolve_links(path: &Path, remote: &HashSet<PathBuf>) -> PathBuf {
    let mut resolved = PathBuf::from("/");
    let mut rest = names_reversed(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            resolved.pop();
            continue;
        }
        resolved.push(&name);
        if remote.contains(&resolved) {
            resolved.extend(rest.into_iter().rev());
            return resolved;
        }
        let Ok(target) = fs::read_link(&resolved) else { continue };
        links += 1;
        if links > MAX_LINKS {
            return path.to_owned();
        }
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        } else {
            resolved.pop();
        }
        rest.extend(names_reversed(&target));
    }
    resolved
}

/// The names in the path, the last one first.
fn names_reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests;
