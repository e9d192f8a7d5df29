//! Making a pool where there is none.
//!
//! It is made in a directory that is empty, or that holds what an interrupted attempt of the same
//! left: no foreign file may end up among the pool's files, where it could be taken for one of them.

use std::fs;
use std::path::Path;

use orlop_model::{Error, Result, SnapshotId, VolumeId};
use orlop_sys::mounts;

use super::failure::cannot;
use super::layout::{self, Layout, STAGING, ensure_private_directory, ensure_root};
use super::managed;
use super::open::ImagePoolConfig;
use super::pool_header::{self, Kind, PoolHeader};

/// Made by mkfs.ext4 in the root of every filesystem.
const LOST_AND_FOUND: &str = "lost+found";
/// How many of the other things in a directory a message names.
const SHOWN: usize = 3;

/// The mark comes last: a directory without it is no pool, whatever a crash left in it. Before it
/// come `staging/` and, in a managed pool, `pool.xfs`, and nothing else: that is what
/// [`refuse_foreign`] takes for a pool that is half-made.
pub(super) fn make(config: &ImagePoolConfig) -> Result<PoolHeader> {
    check_can_make(config)?;
    let root = &config.path;
    ensure_root(root)?;
    tracing::warn!(
        pool = config.name,
        path = %root.display(),
        "there is no pool here; making an empty one. If there should be one, its filesystem is \
         not mounted"
    );
    let staging = Layout::new(root).staging();
    ensure_private_directory(&staging)?;
    let kind = match config.managed_size {
        None => Kind::Plain,
        Some(bytes) => {
            managed::ensure_image(root, &staging, bytes)?;
            Kind::Managed
        }
    };
    PoolHeader::create(root, &staging, kind)
}

/// Changes nothing.
pub(super) fn check_can_make(config: &ImagePoolConfig) -> Result<()> {
    refuse_orphans(config)?;
    refuse_unmounted(config)?;
    refuse_foreign(config)
}

/// Volumes without a mark: it was lost. A new one would have a new id, and the volumes would belong
/// to no pool.
fn refuse_orphans(config: &ImagePoolConfig) -> Result<()> {
    let path = &config.path;
    let image_was_used = managed::mount_point_in(path).exists();
    let image_without_owner =
        managed::image_in(path).exists() && (config.managed_size.is_none() || image_was_used);
    if holds_volumes(path) || image_without_owner {
        return Err(Error::damaged(
            format!("pool {}", config.name),
            format!(
                "{} holds volumes but no orlop.pool; restore that file or use another directory",
                path.display()
            ),
        ));
    }
    Ok(())
}

/// What looks empty may be the mount point of a disk that is broken or late. A pool made there
/// would be on the disk below, and hidden as soon as the right one is mounted.
fn refuse_unmounted(config: &ImagePoolConfig) -> Result<()> {
    let opening = || format!("open pool {}", config.name);
    match mounts::unmounted_above(&config.path).map_err(cannot(opening))? {
        None => Ok(()),
        Some(mount_point) => Err(Error::unreachable(
            opening(),
            format!(
                "/etc/fstab names a filesystem for {}, which is not mounted; mount it",
                mount_point.display()
            ),
        )),
    }
}

fn refuse_foreign(config: &ImagePoolConfig) -> Result<()> {
    let path = &config.path;
    let names = names_in(path)?;
    // Another process made a pool here at the same time; the lock of its pool header decides.
    if names.iter().any(|name| name == pool_header::NAME) {
        return Ok(());
    }
    let half_made = names.iter().any(|name| name == STAGING);
    let mut foreign = Vec::new();
    for name in names {
        match name.as_str() {
            LOST_AND_FOUND => {}
            STAGING => {
                let drafts = names_in(&path.join(STAGING))?;
                let others = drafts.into_iter().filter(|draft| !layout::is_draft_of_pool(draft));
                foreign.extend(others.map(|draft| format!("{STAGING}/{draft}")));
            }
            managed::IMAGE if half_made && config.managed_size.is_some() => {}
            _ => foreign.push(name),
        }
    }
    if foreign.is_empty() {
        return Ok(());
    }
    foreign.sort();
    let more = if foreign.len() > SHOWN { ", …" } else { "" };
    foreign.truncate(SHOWN);
    Err(Error::invalid(
        "ORLOP_POOL",
        format!(
            "cannot make pool {} in {}: it holds other things ({}{more}); name an empty directory, \
             such as {}",
            config.name,
            path.display(),
            foreign.join(", "),
            path.join("orlop").display()
        ),
    ))
}

/// A directory that is not there holds nothing.
fn names_in(directory: &Path) -> Result<Vec<String>> {
    let listing = || format!("check whether a pool can be made in {}", directory.display());
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(cannot(listing))?,
    };
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).map_err(cannot(listing))
    };
    entries.map(name).collect()
}

/// Whether or not it is marked as a pool.
pub(super) fn holds_volumes(path: &Path) -> bool {
    let layout = Layout::new(path);
    holds_any(&layout.volumes(), |name| name.parse::<VolumeId>().is_ok())
        || holds_any(&layout.snapshots(), |name| name.parse::<SnapshotId>().is_ok())
}

fn holds_any(directory: &Path, is_one: impl Fn(&str) -> bool) -> bool {
    names_in(directory).is_ok_and(|names| names.iter().any(|name| is_one(name)))
}

#[cfg(test)]
mod tests;
