//! Directories that the daemon itself lives on: its pools and its run directory. A volume mounted
//! on one of them, or above it, would hide what all volumes depend on; one inside it would be in
//! the way of what is swept there.

use std::path::{Path, PathBuf};

use orlop_model::{Error, Result, TargetPath};

pub(super) struct ProtectedPaths {
    directories: Vec<PathBuf>,
    /// Inside of them, but made for volumes that have no stage of a caller's.
    private_stages: PathBuf,
}

impl ProtectedPaths {
    pub(super) fn new(directories: Vec<PathBuf>, private_stages: PathBuf) -> Self {
        Self { directories, private_stages }
    }

    /// Of a stage, which may be one of our own.
    pub(super) fn check_stage(&self, target: &TargetPath) -> Result<()> {
        self.check_resolved_stage(&resolved(target.as_path()))
    }

    /// Of whatever a caller names.
    pub(super) fn check(&self, target: &TargetPath) -> Result<()> {
        self.check_resolved(&resolved(target.as_path()))
    }

    pub(super) fn check_resolved_stage(&self, place: &Path) -> Result<()> {
        match place.starts_with(resolved(&self.private_stages)) {
            true => Ok(()),
            false => self.check_resolved(place),
        }
    }

    /// Of a path without links.
    pub(super) fn check_resolved(&self, place: &Path) -> Result<()> {
        let overlaps = |directory: &&PathBuf| {
            let directory = resolved(directory);
            place.starts_with(&directory) || directory.starts_with(place)
        };
        match self.directories.iter().find(overlaps) {
            None => Ok(()),
            Some(directory) => Err(Error::invalid(
                "path",
                format!(
                    "{} overlaps with {}, which this plugin needs for itself",
                    place.display(),
                    directory.display()
                ),
            )),
        }
    }
}

/// Without the links in that part of the path which exists; the rest will be made as it is named.
pub(super) fn resolved(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        if let Ok(found) = ancestor.canonicalize() {
            return missing.iter().rev().fold(found, |place, name| place.join(name));
        }
        missing.extend(ancestor.components().next_back().map(|part| part.as_os_str().to_owned()));
    }
    path.to_owned()
}

#[cfg(test)]
mod tests;
