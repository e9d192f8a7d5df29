//! The directory under /run with all that Orlop knows of this boot.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use orlop_model::{Error, Result, TargetPath, VolumeId};
use orlop_sys::file;

use super::failure::Doing;

pub(super) struct RunDirectory {
    root: TargetPath,
}

impl RunDirectory {
    /// Makes what is missing of it.
    pub(super) fn ensure(path: &Path) -> Result<Self> {
        let run_dir = Self::at(path)?;
        for part in [run_dir.volumes(), run_dir.frozen(), run_dir.limited(), run_dir.inline()] {
            ensure_private(&part)?;
        }
        Ok(run_dir)
    }

    pub(super) fn at(path: &Path) -> Result<Self> {
        let unusable = |reason: &dyn Display| {
            let path = path.display();
            Error::precondition(format!("ORLOP_RUN_DIR {path} cannot be used: {reason}"))
        };
        let text = path.to_str().ok_or_else(|| unusable(&"it is not UTF-8"))?;
        let root = TargetPath::parse("run_dir", text).map_err(|error| unusable(&error))?;
        Ok(Self { root })
    }

    pub(super) fn volumes(&self) -> PathBuf {
        self.root.as_path().join("volumes")
    }

    pub(super) fn frozen(&self) -> PathBuf {
        self.root.as_path().join("frozen")
    }

    pub(super) fn limited(&self) -> PathBuf {
        self.root.as_path().join("limited")
    }

    pub(super) fn inline(&self) -> PathBuf {
        self.root.as_path().join("inline")
    }

    pub(super) fn private_stage(&self, id: &VolumeId) -> Result<TargetPath> {
        TargetPath::parse("run_dir", &format!("{}/inline/{id}", self.root))
    }
}

/// The root may be the operator's, with a mode of their choice; what is below is closed.
fn ensure_private(directory: &Path) -> Result<()> {
    let doing = format!("prepare {} in the run directory", directory.display());
    file::ensure_private_directory(directory)
        .and_then(|()| file::close_to_others(directory))
        .doing(&doing)
}
