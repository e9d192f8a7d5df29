//! A filesystem that is frozen as a daemon freezes it: with a record, by which it is thawed after a crash.

use std::path::{Path, PathBuf};

use orlop_model::NameDigest;
use orlop_sys::filesystem;

use crate::launch::Launch;

/// Thawed at the latest when the test ends.
pub struct RecordedFreeze {
    mount: PathBuf,
    note: PathBuf,
}

impl RecordedFreeze {
    pub fn begin(launch: &Launch, mount: &Path) -> Self {
        let path = mount.to_str().expect("paths of tests are text");
        let notes = launch.scratch().join("run/csi.orlop.io/frozen");
        let note = notes.join(NameDigest::of_text(path).as_str());
        std::fs::write(&note, path).expect("note a freeze");
        filesystem::freeze(mount).expect("freeze");
        Self { mount: mount.to_owned(), note }
    }

    pub fn is_recorded(&self) -> bool {
        self.note.exists()
    }

    pub fn lasts(&self) -> bool {
        match filesystem::freeze(&self.mount) {
            Ok(()) => {
                filesystem::ensure_thawed(&self.mount).expect("thaw");
                false
            }
            Err(error) => {
                assert!(error.is_busy(), "{error}");
                true
            }
        }
    }
}

impl Drop for RecordedFreeze {
    fn drop(&mut self) {
        let _ = filesystem::ensure_thawed(&self.mount);
        let _ = std::fs::remove_file(&self.note);
    }
}
