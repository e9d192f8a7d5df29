//! Space kept for when there is none.
//!
//! On a full pool a record cannot be replaced, so nothing could be released and then deleted: the
//! pool would stay full. A little space and an inode are held back by a file, given up when a
//! change needs them, and taken again when there is room.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use orlop_model::Result;
use orlop_sys::file;

use super::failure::cannot;
use crate::poison::lock;

const NAME: &str = ".ballast";
/// Enough for hundreds of records, and for the metadata that they need on any filesystem.
const BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct EmergencyReserve {
    /// The name of the pool.
    pool: String,
    path: PathBuf,
    /// Held until what it was given up for is done, so that it is not taken again before.
    changing: Mutex<()>,
}

impl EmergencyReserve {
    pub(super) fn new(pool: &str, root: &Path) -> Self {
        Self { pool: pool.to_owned(), path: root.join(NAME), changing: Mutex::default() }
    }

    /// Nothing depends on it: where there is no room there is none.
    pub(super) fn ensure(&self) {
        let _changing = lock(&self.changing);
        if let Err(error) = self.take() {
            tracing::debug!(%error, "cannot allocate the emergency reserve");
        }
    }

    fn take(&self) -> Result<()> {
        if self.held() >= BYTES {
            return Ok(());
        }
        let taking = || format!("allocate the emergency reserve of {BYTES} bytes");
        let file = self.open().map_err(cannot(taking))?;
        file::preallocate(&file, 0, BYTES).map_err(cannot(taking)).inspect_err(|_| self.give_up())
    }

    fn held(&self) -> u64 {
        file::allocated_bytes(&self.path).unwrap_or(0)
    }

    fn open(&self) -> orlop_sys::Result<File> {
        file::ensure_file(&self.path)
    }

    /// Truncated before it is removed: XFS frees a removed file some time later. btrfs truncates no file whose
    /// quota is used up, but removes it, and counts it until its next commit.
    fn give_up(&self) {
        let truncated = self.open().and_then(|file| {
            file::set_length(&file, 0)?;
            file::sync_file(&file)
        });
        let released = file::ensure_no_file(&self.path).and_then(|()| match truncated {
            Err(error) if error.is_no_space() => {
                file::sync_filesystem(self.path.parent().unwrap_or(&self.path))
            }
            truncated => truncated,
        });
        if let Err(error) = released {
            tracing::warn!(%error, "cannot release the emergency reserve");
        }
    }

    /// Does what even a full pool must allow, with the space held back if need be.
    pub(super) fn with_reserve<T>(
        &self,
        mut attempt: impl FnMut() -> orlop_sys::Result<T>,
    ) -> orlop_sys::Result<T> {
        match attempt() {
            Err(error) if error.is_no_space() => {
                let _changing = lock(&self.changing);
                if self.held() == 0 {
                    return Err(error);
                }
                tracing::warn!(
                    pool = self.pool,
                    %error,
                    "the pool is full; using the emergency reserve for this change"
                );
                self.give_up();
                attempt()
            }
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests;
