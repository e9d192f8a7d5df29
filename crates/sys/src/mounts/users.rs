//! What keeps a mount busy, as far as this process can see.

use std::fs;
use std::path::{Path, PathBuf};

use super::all_mounts;
use crate::loopdev::first_process;

/// The first that is found: a mount in it, or a process that works in it or has files of it open.
/// Paths are read and not followed: what they lead to may be on a server that does not answer.
pub fn user_of(target: &Path) -> Option<String> {
    let target = real_path(target);
    let mounts = all_mounts().unwrap_or_default();
    let inside = |mount: &Path| mount != target && mount.starts_with(&target);
    let inner = mounts.iter().map(|mount| mount.mount_point.as_path()).find(|mount| inside(mount));
    if let Some(inner) = inner {
        return Some(format!("something is mounted in it, at {}", inner.display()));
    }
    let leads_in = |link: PathBuf| fs::read_link(link).is_ok_and(|at| at.starts_with(&target));
    first_process(|process| {
        if ["cwd", "root"].iter().any(|link| leads_in(process.join(link))) {
            return Some("works in it".to_owned());
        }
        if leads_in(process.join("exe")) {
            return Some("runs a program of it".to_owned());
        }
        let open = fs::read_dir(process.join("fd")).ok()?;
        open.flatten().any(|fd| leads_in(fd.path())).then(|| "has files of it open".to_owned())
    })
}

/// As the kernel shows it. What is mounted there need not be asked.
fn real_path(target: &Path) -> PathBuf {
    let real = target
        .parent()
        .zip(target.file_name())
        .and_then(|(parent, name)| Some(parent.canonicalize().ok()?.join(name)));
    real.unwrap_or_else(|| target.to_owned())
}

#[cfg(test)]
mod tests;
