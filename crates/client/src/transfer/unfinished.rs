//! Imports that are not finished: a volume of which there is a note may be written to again by the same
//! command, and no other one may.

use std::path::{Path, PathBuf};

use orlop_sys::file;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::hand_mounts::{ensure_directory, volume_digest};
use crate::session::Session;

const MAX_BYTES: usize = 1 << 16;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Unfinished {
    pub(super) name: String,
    pub(super) file: PathBuf,
    /// Known once it is created.
    pub(super) volume: Option<String>,
}

fn directory(session: &Session) -> PathBuf {
    session.directory.join("imports")
}

fn name_of(session: &Session, name: &str) -> String {
    format!("{}.json", volume_digest(&session.plugin.driver, name))
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
        if note.is_some_and(|note| note.volume.as_deref() == Some(id)) {
            file::ensure_no_file(&entry.path())
                .map_err(|error| Failure::failed(error.to_string()))?;
        }
    }
    Ok(())
}
