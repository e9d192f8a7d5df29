//! Imports that are not finished: a volume of which there is a note may be written to again by the same
//! command, if it holds the note's mark.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use orlop_sys::file::{self, Lock};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::hand_mounts::{ensure_directory, volume_digest};
use crate::session::Session;

const MAX_BYTES: usize = 1 << 16;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Unfinished {
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) volume: String,
    /// What the volume itself holds as long as it is not complete: ids and names alone do not tell it from a volume
    /// that was made after it.
    pub(super) mark: String,
}

fn directory(session: &Session) -> PathBuf {
    session.directory.join("imports")
}

fn name_of(session: &Session, name: &str) -> String {
    format!("{}.json", volume_digest(&session.plugin.driver, name))
}

/// Two imports to one name would both take the volume for theirs.
pub(super) fn lock(session: &Session, name: &str) -> Result<Lock> {
    let locks = session.directory.join("locks");
    let cannot =
        |why: &dyn Display| Failure::failed(format!("cannot import to volume {name}: {why}"));
    ensure_directory(&session.directory, &locks).map_err(|error| cannot(&error))?;
    let path = locks.join(format!("import-{}", volume_digest(&session.plugin.driver, name)));
    let taken = file::try_lock(&path).map_err(|error| cannot(&error))?;
    taken.ok_or_else(|| cannot(&"another orlop command imports to it; wait for its end"))
}

pub(super) fn find(session: &Session, name: &str) -> Result<Option<Unfinished>> {
    read(&directory(session).join(name_of(session, name)))
}

fn read(path: &Path) -> Result<Option<Unfinished>> {
    match file::read_at_most(path, MAX_BYTES) {
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(Failure::failed(error.to_string())),
        // One that cannot be read allows nothing.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
    }
}

pub(super) fn save(session: &Session, note: &Unfinished) -> Result<()> {
    let directory = directory(session);
    let text =
        serde_json::to_vec_pretty(note).map_err(|error| Failure::failed(error.to_string()))?;
    let saved = ensure_directory(&session.directory, &directory).and_then(|()| {
        file::replace_file_until_reboot(&directory, &name_of(session, &note.name), &text)
    });
    saved.map_err(|error| Failure::failed(format!("cannot note the import: {error}")))
}

pub(super) fn forget(session: &Session, name: &str) -> Result<()> {
    let path = directory(session).join(name_of(session, name));
    file::ensure_no_file(&path).map_err(|error| Failure::failed(error.to_string()))
}

/// A volume that is deleted: one of the same name that is made later is not the import's.
pub(crate) fn forget_volume(session: &Session, id: &str) -> Result<()> {
    // There is no such directory before the first import, and none for others than root.
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
