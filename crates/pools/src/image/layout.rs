//! Where things are in a pool's directory.
//!
//! ```text
//! volumes/ID/{record.json,data}     snapshots/ID/{record.json,data}
//! groups/ID.json                    group-snapshots/ID.json
//! staging/ID.N                      half-made things, swept at start
//! trash/ID.N                        deleted: renamed here first, then freed
//! .ballast                          space held back for a full pool
//! ```

use std::fmt::Display;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use orlop_model::Result;
use orlop_sys::file;

use super::failure::Doing;

const STAGING: &str = "staging";
const TRASH: &str = "trash";
const DIRECTORIES: [&str; 6] =
    ["volumes", "snapshots", "groups", "group-snapshots", STAGING, TRASH];
const PRIVATE: u32 = 0o700;

#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    /// Makes the names in staging/ and trash/ unique. Starting at 0 is safe because both are
    /// swept before the first use.
    used: AtomicU64,
}

impl Layout {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), used: AtomicU64::new(0) }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    pub(super) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub(super) fn staging(&self) -> PathBuf {
        self.root.join(STAGING)
    }

    pub(super) fn new_in_staging(&self, name: &impl Display) -> PathBuf {
        self.unique(STAGING, name)
    }

    pub(super) fn new_in_trash(&self, name: &impl Display) -> PathBuf {
        self.unique(TRASH, name)
    }

    fn unique(&self, directory: &str, name: &impl Display) -> PathBuf {
        let number = self.used.fetch_add(1, Ordering::Relaxed);
        self.root.join(directory).join(format!("{name}.{number}"))
    }

    pub(super) fn ensure(&self) -> Result<()> {
        for name in DIRECTORIES {
            ensure_private_directory(&self.root.join(name))?;
        }
        // Without this a crash could keep a volume's directory but not volumes/ itself.
        file::sync_dir(&self.root).doing(|| "lay out the pool".to_owned())
    }

    /// Removes what a crash left half-made or half-deleted. What cannot be removed is in nobody's
    /// way, so it is no reason not to start.
    pub(super) fn sweep(&self) -> Result<()> {
        self.sweep_staging()?;
        sweep(&self.root.join(TRASH))
    }

    /// The half of it that concerns the directory around a managed pool's image.
    pub(super) fn sweep_staging(&self) -> Result<()> {
        ensure_private_directory(&self.staging())?;
        sweep(&self.staging())
    }
}

fn sweep(directory: &Path) -> Result<()> {
    let listing = || format!("sweep {}", directory.display());
    for entry in std::fs::read_dir(directory).doing(listing)? {
        let path = entry.doing(listing)?.path();
        match file::remove_tree(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "removed a leftover"),
            Err(error) => tracing::warn!(%error, "a leftover stays"),
        }
    }
    Ok(())
}

/// Makes the directory and what is missing above it; only its owner may look inside.
pub(super) fn ensure_private_directory(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE)
        .create(path)
        .doing(|| format!("make the directory {}", path.display()))
}

/// The directory of one volume or snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Home(PathBuf);

impl Home {
    pub(super) const RECORD: &str = "record.json";

    pub(super) fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    pub(super) fn record(&self) -> PathBuf {
        self.0.join(Self::RECORD)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// Makes the directory itself; it must not be there yet.
    pub(super) fn create(&self) -> Result<()> {
        DirBuilder::new()
            .mode(PRIVATE)
            .create(&self.0)
            .doing(|| format!("make the directory {}", self.0.display()))
    }

    /// Removes the directory with all that is in it; missing is fine.
    pub(super) fn remove(&self) -> orlop_sys::Result<()> {
        // XFS frees an unlinked file some time later, in the background. Cut to nothing first,
        // its space is there for the next volume when this returns.
        if let Ok(data) = OpenOptions::new().write(true).open(self.data())
            && let Err(error) = file::set_length(&data, 0)
        {
            tracing::debug!(%error, "not cut before it is removed");
        }
        file::remove_tree(&self.0)
    }
}
