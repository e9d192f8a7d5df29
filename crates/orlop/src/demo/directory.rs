//! The directory of one demo, and how all of it is removed.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_sys::file::{Lock, remove_tree, try_lock};
use orlop_sys::{filesystem, loopdev, mounts, rand};

use super::failure::Failure;
use super::screen::Screen;

const PREFIX: &str = "orlop-demo.";
/// After the prefix, hexadecimal.
const SUFFIX_DIGITS: usize = 8;
const LOCK: &str = "demo.lock";
/// Marks a directory that `--keep` left on purpose.
const KEPT: &str = "kept";
/// Holds the path of a cgroup that has to be removed with the directory.
const CGROUP: &str = "cgroup";
pub(super) const POOL: &str = "pool";
/// A demo that has just made its directory has no lock in it yet.
const TIME_TO_LOCK: Duration = Duration::from_secs(60);
/// The kernel releases processes and devices a moment after they have ended.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Held for as long as the demo runs.
pub(super) struct DemoDirectory {
    path: PathBuf,
    _lock: Lock,
}

impl DemoDirectory {
    pub(super) fn new(parent: &Path) -> Result<Self, Failure> {
        let doing = || format!("make a directory in {}", parent.display());
        let random = rand::random_bytes::<4>().map_err(Failure::cannot(doing()))?;
        let name = format!("{PREFIX}{:08x}", u32::from_le_bytes(random));
        let path = parent.join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(Failure::cannot(doing()))?;
        match try_lock(&path.join(LOCK)) {
            Ok(Some(lock)) => Ok(Self { path, _lock: lock }),
            locked => {
                let why = match locked {
                    Err(error) => error.to_string(),
                    Ok(_) => "another demo took it for abandoned".to_owned(),
                };
                Err(Failure::broken(format!("cannot lock {}: {why}", path.display())))
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A part of names that belong to this demo alone.
    pub(super) fn suffix(&self) -> String {
        let name = self.path.extension().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// To be called before the cgroup is made.
    pub(super) fn note_cgroup(&self, group: &Path) -> Result<(), Failure> {
        let noted = std::fs::write(self.path.join(CGROUP), group.as_os_str().as_encoded_bytes());
        noted.map_err(Failure::cannot("note the cgroup of the demo"))
    }

    /// No process of the demo may run any more.
    pub(super) fn remove(self) -> Result<(), Failure> {
        empty(&self.path)
    }

    /// The directory stays; mounts and devices do not.
    pub(super) fn keep(self) -> Result<PathBuf, Failure> {
        release(&self.path)?;
        remove_cgroup(&self.path)?;
        let marked = std::fs::write(self.path.join(KEPT), "by orlop demo --keep\n");
        marked.map_err(Failure::cannot("mark the directory as kept"))?;
        Ok(self.path)
    }
}

/// Removes the directories of killed demos.
pub(super) fn remove_abandoned(parent: &Path, screen: &mut Screen) -> Result<(), Failure> {
    let entries = std::fs::read_dir(parent);
    let entries = entries.map_err(Failure::cannot(format!("list {}", parent.display())))?;
    for entry in entries.flatten() {
        let path = entry.path();
        match abandoned(&path) {
            None => continue,
            // A directory of another program, which has just put something in it, is left.
            Some(Abandoned::Empty) if std::fs::remove_dir(&path).is_err() => continue,
            Some(Abandoned::Empty) => {}
            Some(Abandoned::Locked) => {
                // Locked while it is removed, so that two demos do not do it at once.
                let Ok(Some(_lock)) = try_lock(&path.join(LOCK)) else { continue };
                empty(&path)?;
            }
        }
        screen.line(&format!("removed {}, which a killed demo had left", path.display()))?;
    }
    Ok(())
}

/// The directory of a killed demo.
#[derive(Debug, PartialEq, Eq)]
enum Abandoned {
    /// It has a lock, and all that the demo made.
    Locked,
    /// It was killed before it made anything.
    Empty,
}

/// The parent may be open to all users, so only directories of this user count. Another program may have made a directory
/// of a similar name, so a directory with contents is removed only if it has the lock of a demo.
fn abandoned(path: &Path) -> Option<Abandoned> {
    let name = path.file_name()?.to_str()?;
    let suffix = name.strip_prefix(PREFIX)?;
    let is_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if suffix.len() != SUFFIX_DIGITS || !suffix.bytes().all(is_hex) {
        return None;
    }
    let found = std::fs::symlink_metadata(path).ok()?;
    let is_ours = found.is_dir()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o077 == 0;
    if !is_ours || path.join(KEPT).exists() {
        return None;
    }
    if path.join(LOCK).symlink_metadata().is_ok_and(|lock| lock.is_file()) {
        return Some(Abandoned::Locked);
    }
    let age = found.modified().ok().and_then(|made| made.elapsed().ok());
    let is_old = age.is_some_and(|age| age > TIME_TO_LOCK);
    let is_empty = std::fs::read_dir(path).ok()?.next().is_none();
    (is_old && is_empty).then_some(Abandoned::Empty)
}

fn empty(directory: &Path) -> Result<(), Failure> {
    let doing = || format!("remove all that the demo made in {}", directory.display());
    release(directory)?;
    remove_cgroup(directory)?;
    // A process that was killed closes its files a moment later.
    until_done(|| remove_tree(directory).map_err(Failure::cannot(doing())))
}

/// Unmounts and detaches all that is below. A volume's device lies on a file of the pool's mount, and keeps that busy:
/// so first come mounts outside of the pool, then devices, and then the same for the pool itself.
fn release(directory: &Path) -> Result<(), Failure> {
    let pool = directory.join(POOL);
    for of_pool in [false, true] {
        let points = mounts_below(directory)?;
        for point in points.iter().filter(|point| point.starts_with(&pool) == of_pool) {
            // Block devices that are bound to a file cannot be frozen.
            let _ = filesystem::ensure_thawed(point);
            until_done(|| {
                mounts::ensure_unmounted(point).map_err(|error| {
                    let user = mounts::user_of(point).unwrap_or_default();
                    Failure::broken(format!(
                        "cannot remove {}: {error} ({user}); end what uses it, and the next demo removes it",
                        directory.display()
                    ))
                })
            })?;
        }
        let in_mount = |file: &Path| points.iter().any(|point| file.starts_with(point));
        for found in devices_below(directory)? {
            if of_pool || in_mount(&found.file) {
                until_done(|| {
                    let detached = loopdev::ensure_detached_from(&found.device, &found.file);
                    detached.map_err(Failure::cannot("detach a loop device of the demo"))
                })?;
            }
        }
    }
    until_done(|| nothing_is_used(directory))
}

fn nothing_is_used(directory: &Path) -> Result<(), Failure> {
    let left = mounts_below(directory)?;
    let devices = devices_below(directory)?;
    let devices = devices.iter().map(|found| found.device.path());
    match left.into_iter().chain(devices).next() {
        None => Ok(()),
        Some(used) => Err(Failure::broken(format!(
            "cannot remove {}: {} is still in use",
            directory.display(),
            used.display()
        ))),
    }
}

/// The deepest and latest first.
fn mounts_below(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let all = mounts::all_mounts().map_err(Failure::cannot("list mounts"))?;
    let points = all.into_iter().rev().map(|entry| entry.mount_point);
    let mut points: Vec<_> = points.filter(|point| point.starts_with(directory)).collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    Ok(points)
}

fn devices_below(directory: &Path) -> Result<Vec<loopdev::BackedDevice>, Failure> {
    let mut all = loopdev::all_backed().map_err(Failure::cannot("list loop devices"))?;
    all.retain(|found| found.file.starts_with(directory));
    Ok(all)
}

fn remove_cgroup(directory: &Path) -> Result<(), Failure> {
    let Ok(noted) = std::fs::read_to_string(directory.join(CGROUP)) else { return Ok(()) };
    until_done(|| match std::fs::remove_dir(&noted) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::broken(format!("cannot remove the cgroup {noted}: {error}")))
        }
        _ => Ok(()),
    })
}

fn until_done(mut attempt: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    let deadline = Instant::now() + CLEANUP_TIMEOUT;
    loop {
        match attempt() {
            Err(_) if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests;
