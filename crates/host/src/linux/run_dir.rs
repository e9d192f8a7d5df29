//! The directory under /run with all that Orlop knows of this boot.

use std::fmt::Display;
use std::fs::{DirBuilder, Permissions, set_permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use orlop_model::{Error, Result, TargetPath, VolumeId};

use super::failure::Doing;

const OURS_ALONE: u32 = 0o700;

pub(super) struct RunDirectory {
    root: TargetPath,
}

impl RunDirectory {
    pub(super) fn ensure(path: &Path) -> Result<Self> {
        let unusable = |reason: &dyn Display| {
            let path = path.display();
            Error::precondition(format!("ORLOP_RUN_DIR {path} cannot be used: {reason}"))
        };
        let text = path.to_str().ok_or_else(|| unusable(&"it is not UTF-8"))?;
        let root = TargetPath::parse("run_dir", text).map_err(|error| unusable(&error))?;
        let run_dir = Self { root };
        for part in [run_dir.volumes(), run_dir.frozen(), run_dir.limited(), run_dir.inline()] {
            ensure_private(&part)?;
        }
        Ok(run_dir)
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
    DirBuilder::new()
        .recursive(true)
        .mode(OURS_ALONE)
        .create(directory)
        .and_then(|()| set_permissions(directory, Permissions::from_mode(OURS_ALONE)))
        .doing(&doing)
}
