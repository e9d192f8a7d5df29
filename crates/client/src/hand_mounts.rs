//! Mounts that people made with the client on this machine. A note of each is written before its first step, so that
//! the next command can complete or undo an interrupted one.
//!
//! The notes are below the run directory: a reboot clears them together with the mounts.

mod mount;
mod unmount;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_csi::proto::csi::v1;
use orlop_model::NameDigest;
use orlop_sys::file::{self, Lock};
use serde::{Deserialize, Serialize};

use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};

pub(crate) use mount::{MountRequest, ensure_mounted, target, volume_to_mount};
pub(crate) use unmount::ensure_unmounted;

const NOTES: &str = "mounts";
const MAX_NOTE_BYTES: usize = 1 << 20;
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandMount {
    pub(crate) driver: String,
    pub(crate) socket: PathBuf,
    pub(crate) volume: String,
    pub(crate) context: BTreeMap<String, String>,
    pub(crate) target: PathBuf,
    pub(crate) staging: PathBuf,
    pub(crate) access: Access,
    pub(crate) mode: ModeName,
    pub(crate) read_only: bool,
    pub(crate) node: String,
    /// The volume was published to this node for this mount, so unmounting unpublishes it.
    pub(crate) attached: bool,
    /// The volume was made for this mount from this snapshot or volume, and is deleted with it.
    pub(crate) temporary_copy_of: Option<String>,
    /// The directory that was at the target before, and is restored by unmounting.
    #[serde(alias = "place")]
    pub(crate) directory_before: Option<Attributes>,
    /// The same for the file at which a raw device appears.
    #[serde(default)]
    pub(crate) file_before: Option<Attributes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    mode: u32,
    user: u32,
    group: u32,
}

impl HandMount {
    pub(crate) fn capability(&self) -> v1::VolumeCapability {
        self.access.capability(self.mode)
    }

    fn is_same(&self, other: &Self) -> bool {
        let plain = |it: &Self| Self {
            attached: false,
            directory_before: None,
            file_before: None,
            context: BTreeMap::new(),
            socket: PathBuf::new(),
            ..it.clone()
        };
        plain(self) == plain(other)
    }
}

/// The mounts of one volume of one plugin.
pub(crate) fn of_volume(directory: &Path, driver: &str, volume: &str) -> Result<Vec<HandMount>> {
    let is_of_volume = |mount: &HandMount| mount.driver == driver && mount.volume == volume;
    Ok(all(directory)?.into_iter().filter(is_of_volume).collect())
}

pub(crate) fn all(directory: &Path) -> Result<Vec<HandMount>> {
    let notes = directory.join(NOTES);
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "cannot list what is mounted by hand: {}: {error}",
            notes.display()
        ))
    };
    let entries = match std::fs::read_dir(&notes) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        // The notes belong to root. Other users cannot read them, and have no mounts.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(Vec::new()),
        entries => entries.map_err(|error| cannot(&error))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| cannot(&error))?.path();
        if path.extension().is_some_and(|extension| extension == "json")
            && let Some(mount) = read(&path)?
        {
            found.push(mount);
        }
    }
    found.sort_by(|a, b| a.target.cmp(&b.target));
    Ok(found)
}

pub(crate) fn at_target(directory: &Path, target: &Path) -> Result<Option<HandMount>> {
    read(&directory.join(NOTES).join(name_of(target)))
}

fn name_of(target: &Path) -> String {
    format!("{}.json", NameDigest::of_text(&target.to_string_lossy()).as_str())
}

/// `None`: there is none, or no longer.
fn read(path: &Path) -> Result<Option<HandMount>> {
    let bytes = match file::read_at_most(path, MAX_NOTE_BYTES) {
        Err(error) if error.is_not_found() => return Ok(None),
        bytes => bytes.map_err(|error| Failure::failed(error.to_string()))?,
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        Failure::failed(format!(
            "cannot read the note of a mount {}: {error}; unmount by hand what it names, and remove it",
            path.display()
        ))
    })
}

fn save(directory: &Path, mount: &HandMount) -> Result<()> {
    let notes = directory.join(NOTES);
    let text =
        serde_json::to_vec_pretty(mount).map_err(|error| Failure::failed(error.to_string()))?;
    let saved = ensure_directory(directory, &notes)
        .and_then(|()| file::replace_file_until_reboot(&notes, &name_of(&mount.target), &text));
    saved.map_err(|error| {
        Failure::failed(format!(
            "cannot write the note of the mount at {}: {error}",
            mount.target.display()
        ))
    })
}

fn forget(directory: &Path, mount: &HandMount) -> Result<()> {
    let note = directory.join(NOTES).join(name_of(&mount.target));
    file::ensure_no_file(&note).map_err(|error| {
        Failure::failed(format!(
            "cannot remove the note of the mount at {}: {error}",
            mount.target.display()
        ))
    })
}

/// Readable by root alone, because notes have paths and ids of volumes.
pub(crate) fn ensure_directory(directory: &Path, inner: &Path) -> orlop_sys::Result<()> {
    if let Some(run_dir) = directory.parent() {
        // The daemon makes it too, where there is one.
        let _ = std::fs::create_dir_all(run_dir);
    }
    file::ensure_private_directory(directory)?;
    file::ensure_private_directory(inner)
}

/// Two commands at once would undo each other's work.
pub(crate) async fn lock(
    directory: &Path,
    driver: &str,
    volume: &str,
    timeout: Duration,
) -> Result<Lock> {
    let locks = directory.join("locks");
    let cannot = |why: String| {
        Failure::failed(format!("cannot lock volume {volume} for this command: {why}"))
    };
    ensure_directory(directory, &locks).map_err(|error| cannot(error.to_string()))?;
    // One of 256 files for all volumes: commands for two volumes with the same file wait for each other.
    let digest = volume_digest(driver, volume);
    let path = locks.join(digest.get(..2).unwrap_or(&digest));
    let until = Instant::now() + timeout;
    loop {
        match file::try_lock(&path).map_err(|error| cannot(error.to_string()))? {
            Some(lock) => return Ok(lock),
            None if Instant::now() < until => tokio::time::sleep(LOCK_INTERVAL).await,
            None => {
                return Err(cannot(
                    "another orlop command is using it; run this one again later".to_owned(),
                ));
            }
        }
    }
}

pub(crate) fn volume_digest(driver: &str, volume: &str) -> String {
    NameDigest::of_text(&format!("{driver}\0{volume}")).as_str().to_owned()
}
