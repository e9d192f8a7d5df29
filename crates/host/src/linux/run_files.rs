//! Small files of the run directory: node records, and markers of what must be undone if this process
//! ends too early.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use orlop_model::{Error, Result};
use orlop_sys::file;

use super::failure::{cannot, cannot_io};

const LONGEST: usize = 1 << 20;

pub(super) struct RunFiles {
    directory: PathBuf,
}

impl RunFiles {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn write(&self, name: &str, contents: &[u8]) -> Result<()> {
        // A reboot clears the directory, so nothing in it has to survive one.
        file::replace_file_until_reboot(&self.directory, name, contents)
            .map_err(cannot("write to the run directory"))
    }

    /// `None`: there is no such file.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name);
        match file::read_small(&path, LONGEST) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) if error.is_refusal() => {
                Err(Error::damaged(format!("the note {}", path.display()), error.cause()))
            }
            Err(error) => Err(cannot(&format!("read {}", path.display()))(error)),
        }
    }

    pub(super) fn is_directory(&self, name: &str) -> Result<bool> {
        let path = self.path(name);
        match std::fs::symlink_metadata(&path) {
            Ok(there) => Ok(there.is_dir()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(cannot_io(&format!("inspect {}", path.display()))(error)),
        }
    }

    /// A file that is gone already is fine.
    pub(super) fn rename(&self, name: &str, new: &str) -> Result<()> {
        let path = self.path(name);
        match std::fs::rename(&path, self.path(new)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            renamed => renamed.map_err(cannot_io(&format!("rename {}", path.display()))),
        }
    }

    pub(super) fn has(&self, name: &str) -> Result<bool> {
        let path = self.path(name);
        path.try_exists().map_err(cannot_io(&format!("check whether {} exists", path.display())))
    }

    pub(super) fn ensure_removed(&self, name: &str) -> Result<()> {
        ensure_file_removed(&self.path(name))
    }

    /// Hidden files are what an interrupted write left behind. Without the directory there are none.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let doing = format!("list {}", self.directory.display());
        let mut names = Vec::new();
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(names),
            entries => entries.map_err(cannot_io(&doing))?,
        };
        for entry in entries {
            // A name that is not UTF-8 is none of ours.
            names.extend(entry.map_err(cannot_io(&doing))?.file_name().into_string());
        }
        names.retain(|name| !name.starts_with('.'));
        Ok(names)
    }
}

fn ensure_file_removed(path: &Path) -> Result<()> {
    file::ensure_no_file(path).map_err(cannot("remove a file from the run directory"))
}
