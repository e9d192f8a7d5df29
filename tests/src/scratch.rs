//! A directory that belongs to one test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::leaks;

/// Shared by all that live in it; the last one takes it away, with whatever is still attached to
/// or mounted in it.
#[derive(Clone)]
pub struct Scratch(Arc<ScratchDir>);

struct ScratchDir {
    directory: Option<TempDir>,
    /// Without links, as the kernel names it in mountinfo and sysfs.
    path: PathBuf,
}

impl Scratch {
    pub fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    pub fn within(parent: &Path) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("orlop-test.")
            .tempdir_in(parent)
            .expect("make a scratch directory");
        let path = directory.path().canonicalize().expect("resolve it");
        Self(Arc::new(ScratchDir { directory: Some(directory), path }))
    }

    pub fn path(&self) -> &Path {
        &self.0.path
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path.join(name)
    }

    /// A directory below, made if missing, with its parents.
    pub fn ensure_dir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(&path).expect("make a directory in the scratch");
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        leaks::remove_everything(&self.path);
        let removed = orlop_sys::file::remove_tree(&self.path);
        // Its own removal would descend into mounts that resisted.
        self.directory.take().map(TempDir::keep);
        if !std::thread::panicking() {
            removed.expect("remove the scratch directory");
        }
    }
}
