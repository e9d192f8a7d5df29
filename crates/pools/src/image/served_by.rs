//! `served-by.json`: who served the pool last.
//!
//! Nothing in the pool depends on it: volumes are where the pool is. It tells whoever gets the
//! disk where it came from.

use std::fs;
use std::path::Path;

use orlop_model::{Error, Result, Topology};
use orlop_sys::file;
use serde::{Deserialize, Serialize};

use super::failure::Doing;

const NAME: &str = "served-by.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedBy {
    /// The operator's name for the pool.
    pub name: String,
    /// Where the node was; one of its segments is the node itself.
    pub place: Topology,
}

impl ServedBy {
    /// `None`: nobody noted it, or not in a way that can be read.
    pub(super) fn read(root: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(root.join(NAME)).ok()?).ok()
    }

    /// At a start. A pool that is full or read-only is served all the same.
    pub(super) fn note(&self, root: &Path) {
        let before = Self::read(root);
        if before.as_ref() == Some(self) {
            return;
        }
        if let Some(before) = before {
            tracing::info!(pool = self.name, ?before, "this pool was served elsewhere before");
        }
        if let Err(error) = self.write(root) {
            tracing::warn!(%error, "who serves the pool is not noted in it");
        }
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let noting = || format!("note who serves the pool at {}", root.display());
        let text = serde_json::to_vec(self).map_err(|error| Error::failed(noting(), error))?;
        file::replace_file(root, NAME, &text).doing(noting)
    }
}
