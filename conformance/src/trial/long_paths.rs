//! Paths of a chosen length.

use std::path::{Path, PathBuf};

use super::{Placed, Trial};
use crate::check::Outcome;
use crate::wire::csi::v1::{Volume, VolumeCapability};

/// NAME_MAX of Linux.
const LONGEST_NAME: usize = 255;

impl Trial {
    /// A path of exactly this many bytes below `root`, in a directory that is there. `None`: the
    /// way to it is longer already.
    pub fn path_of_length(&self, root: &Path, length: usize) -> Outcome<Option<PathBuf>> {
        let mut path = root.join(self.name("long"));
        self.made_directory(&path)?;
        loop {
            let Some(missing) = length.checked_sub(path.as_os_str().len()) else {
                return Ok(None);
            };
            match missing {
                0 | 1 => return Ok(None),
                2..=LONGEST_NAME => return Ok(Some(path.join("t".repeat(missing - 1)))),
                _ => {
                    // What is left has to be enough for a slash and a name.
                    path.push("d".repeat(LONGEST_NAME.min(missing - 3)));
                    self.made_directory(&path)?;
                }
            }
        }
    }
    /// As [`Trial::staged`], at a path of the caller's choice.
    pub async fn staged_at(
        &self,
        volume: &Volume,
        capability: VolumeCapability,
        staging: String,
    ) -> Outcome<Placed> {
        if !self.stages() {
            return self.staged(volume, capability).await;
        }
        self.made_directory(Path::new(&staging))?;
        let publish_context = self.attached(volume, &capability).await?;
        let mut request = self.stage(volume, &capability, &publish_context)?;
        request.staging_target_path.clone_from(&staging);
        self.ok(request).await?;
        let volume = volume.clone();
        Ok(Placed { volume, capability, publish_context, staging, target: String::new() })
    }
}
