//! Paths that are long.

use std::path::{Path, PathBuf};

use super::CheckContext;
use crate::check::Outcome;

/// NAME_MAX of Linux.
const LONGEST_NAME: usize = 255;
/// Every plugin has to take a path of this many bytes.
const LONG_PATH: usize = 128;

impl CheckContext {
    /// A path of exactly this many bytes below `root`, in a directory that is there; the check
    /// does not apply where the way to it is longer already.
    pub fn path_of_length(&self, root: &Path, length: usize) -> Outcome<String> {
        let mut path = root.join(self.name("long"));
        self.made_directory(&path)?;
        loop {
            let missing = length.saturating_sub(path.as_os_str().len());
            match missing {
                0 | 1 => {
                    let root = root.display();
                    return self.not_applicable(format!("{root} is too long for this check"));
                }
                2..=LONGEST_NAME => return self.text_of(&path.join("t".repeat(missing - 1))),
                _ => {
                    // What is left has to be enough for a slash and a name.
                    path.push("d".repeat(LONGEST_NAME.min(missing - 3)));
                    self.made_directory(&path)?;
                }
            }
        }
    }

    /// As [`CheckContext::staging_path`], of 128 bytes or a little more.
    pub fn long_staging_path(&self) -> Outcome<String> {
        let path = lengthened(self.options().staging_dir.join(self.name("stage")));
        self.made_directory(&path)?;
        self.text_of(&path)
    }

    /// As [`CheckContext::target_path`], of 128 bytes or a little more.
    pub fn long_target_path(&self) -> Outcome<String> {
        let parent = self.options().target_dir.join(self.name("target"));
        self.made_directory(&parent)?;
        self.text_of(&lengthened(parent.join("volume")))
    }
}

fn lengthened(path: PathBuf) -> PathBuf {
    let missing = LONG_PATH.saturating_sub(path.as_os_str().len());
    let mut text = path.into_os_string();
    text.push("x".repeat(missing));
    text.into()
}
