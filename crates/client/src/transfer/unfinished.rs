//! Notes of unfinished imports. The same command may write to the volume of a note again if the volume holds the
//! note's mark.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use orlop_sys::file::{self, Lock};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::hand_mounts::{ensure_directory, volume_digest};
use crate::session::Session;

const MAX_BYTES: usize = 1 << 16;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UnfinishedImport {
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) volume: String,
    /// The volume begins with this until it is complete. It tells the volume from one that was created later with the
    /// same id and name.
    pub(super) mark: String,
}

fn directory(session: &Session) -> PathBuf {
    session.directory.join("imports")
}

fn name_of(session: &Session, name: &str) -> String {
    format!("{}.json", volume_digest(&session.plugin.driver, name))
}

/// Keeps two imports from using the same volume.
pub(super) fn lock(session: &Session, name: &str) -> Result<Lock> {
    let locks = session.directory.join("locks");
    let cannot =
        |why: &dyn Display| Failure::failed(format!("cannot import to volume {name}: {why}"));
    ensure_directory(&session.directory, &locks).map_err(|error| cannot(&error))?;
    let path = locks.join(format!("import-{}", volume_digest(&session.plugin.driver, name)));
    let taken = file::try_lock(&path).map_err(|error| cannot(&error))?;
    taken.ok_or_else(|| cannot(&"another orlop command is importing to it; wait until that ends"))
}

pub(super) fn find(session: &Session, name: &str) -> Result<Option<UnfinishedImport>> {
    read(&directory(session).join(name_of(session, name)))
}

fn read(path: &Path) -> Result<Option<UnfinishedImport>> {
    match file::read_at_most(path, MAX_BYTES) {
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(Failure::failed(error.to_string())),
        // Without a note that can be read, the volume is not written to.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
    }
}

pub(super) fn save(session: &Session, note: &UnfinishedImport) -> Result<()> {
    let directory = directory(session);
    let text =
        serde_json::to_vec_pretty(note).map_err(|error| Failure::failed(error.to_string()))?;
    let saved = ensure_directory(&session.directory, &directory).and_then(|()| {
        file::replace_file_until_reboot(&directory, &name_of(session, &note.name), &text)
    });
    saved.map_err(|error| {
        Failure::failed(format!(
            "cannot write the note of the import to volume {}: {error}",
            note.name
        ))
    })
}

pub(super) fn forget(session: &Session, name: &str) -> Result<()> {
    let path = directory(session).join(name_of(session, name));
    file::ensure_no_file(&path).map_err(|error| Failure::failed(error.to_string()))
}

/// Removes the note of a volume that is deleted: one that is created later with its name does not belong to the import.
pub(crate) fn forget_volume(session: &Session, id: &str) -> Result<()> {
    // The directory is missing before the first import, and closed to other users than root.
    let Ok(entries) = std::fs::read_dir(directory(session)) else { return Ok(()) };
    for entry in entries.flatten() {
        let note = read(&entry.path())?;
        if note.is_some_and(|note| note.volume == id) {
            file::ensure_no_file(&entry.path())
                .map_err(|error| Failure::failed(error.to_string()))?;
        }
    }
    Ok(())
}
