//! `served-by.json`: who served the pool last.
//!
//! Nothing in the pool depends on it: volumes are where the pool is. It says where a disk came from
//! that is found elsewhere, and the doctor which run directory has the records of what is in use.

use std::path::{Path, PathBuf};

use orlop_model::{Error, Reason, Result, Topology};
use orlop_sys::file;
use serde::{Deserialize, Serialize};

use super::failure::cannot;

const NAME: &str = "served-by.json";
const LONGEST: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastOwner {
    /// The operator's name for the pool.
    pub name: String,
    /// Where the node was; one of its segments is the node itself.
    #[serde(rename = "place")]
    pub topology: Topology,
    /// The run directory with the same stamp is that of the daemon which served the pool last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_stamp: Option<String>,
    /// Where that daemon had its run directory. Only a place to look at, as it may be another one there: the
    /// stamp decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<PathBuf>,
}

impl LastOwner {
    /// `None`: the file is missing or cannot be read.
    pub(super) fn read(root: &Path) -> Option<Self> {
        serde_json::from_slice(&file::read_small(&root.join(NAME), LONGEST).ok()?).ok()
    }

    /// At a start. A pool that is full or read-only is served all the same. The stamp stays as it is.
    pub(super) fn note(name: &str, topology: &Topology, root: &Path) {
        let before = Self::read(root);
        let run_stamp = before.as_ref().and_then(|before| before.run_stamp.clone());
        let run_dir = before.as_ref().and_then(|before| before.run_dir.clone());
        let now = Self { name: name.to_owned(), topology: topology.clone(), run_stamp, run_dir };
        if before.as_ref() == Some(&now) {
            return;
        }
        if let Some(before) = before {
            let segments = before.topology.segments();
            let topology: Vec<_> = segments.map(|(key, value)| format!("{key}={value}")).collect();
            tracing::info!(
                pool = name,
                name_before = before.name,
                topology_before = topology.join(","),
                "the pool was last served under another name, topology or run directory"
            );
        }
        if let Err(error) = now.write(root) {
            tracing::warn!(%error, "cannot record in the pool which daemon serves it");
        }
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let noting = || format!("record which daemon serves the pool at {}", root.display());
        let text =
            serde_json::to_vec(self).map_err(|error| Error::failed(noting(), Reason::of(error)))?;
        file::replace_file(root, NAME, &text).map_err(cannot(noting))
    }
}
