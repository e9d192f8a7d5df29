//! /etc/fstab: where the operator wants filesystems to be.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{mount_at, mountinfo};
use crate::error::{Context, Result};

const FSTAB: &str = "/etc/fstab";

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
    let path = resolved(path);
    let above = mount_points(fstab).map(|point| resolved(&point));
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

/// Links in what exists of the path are followed; the rest is taken as it is.
fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests;
