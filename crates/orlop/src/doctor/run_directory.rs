//! Which run directory has the records of what is used of a pool: the one with the pool's stamp (decision 0043).
//! The settings and the pool say where to look, and only the stamp decides: with the wrong directory, all that
//! is in use looks forgotten.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orlop_host::LinuxHost;
use orlop_model::PoolId;
use orlop_pools::image::LastOwner;

use crate::config::{Config, DEFAULT_RUN_DIR};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunDirectory {
    /// The only one with the pool's stamp.
    Of(PathBuf),
    /// None of these has it. There is none after a reboot, until the pool is served again.
    NotFound(Vec<PathBuf>),
    /// All of these have it, so all but one are copies.
    Several(Vec<PathBuf>),
}

impl RunDirectory {
    pub(crate) fn of_pool(config: &Config, id: &PoolId, owner: Option<&LastOwner>) -> Self {
        let places = places(config, owner);
        let stamp = owner.and_then(|owner| owner.run_stamp.as_deref());
        let has_stamp = |place: &&PathBuf| {
            // One that cannot be read has no records that could be used.
            stamp.is_some_and(|stamp| {
                LinuxHost::is_run_dir_of(place, id, stamp).is_ok_and(|is_it| is_it)
            })
        };
        let mut found: Vec<PathBuf> = places.iter().filter(has_stamp).cloned().collect();
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Self::Of(only),
            (Some(last), false) => {
                found.push(last);
                Self::Several(found)
            }
            (None, _) => Self::NotFound(places),
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Of(path) => Some(path),
            Self::NotFound(_) | Self::Several(_) => None,
        }
    }

    /// Why nothing that is attached or mounted is taken for forgotten, and what to do; `None`: it is known.
    pub(crate) fn advice(&self) -> Option<String> {
        match self {
            Self::Of(_) => None,
            Self::NotFound(places) => Some(format!(
                "the run directory of the daemon that served this pool last was not found; examined: {}. If \
                 that daemon has another ORLOP_RUN_DIR or ORLOP_DRIVER_NAME, set both as it has them and run \
                 the doctor again; if files of its run directory were lost, stage and publish the volume \
                 again with the same arguments, which leaves its workload alone, or unpublish and unstage it",
                listed(places)
            )),
            Self::Several(places) => Some(format!(
                "these run directories are all marked as that of the daemon that served this pool last: {}. \
                 All but one are copies: move those out of /run, or remove them, and run the doctor again",
                listed(places)
            )),
        }
    }
}

fn listed(places: &[PathBuf]) -> String {
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    places.join(", ")
}

/// Where a run directory of the pool may be: as the settings and the pool say, and beside these, for another
/// driver name. Each directory once, whatever leads to it.
fn places(config: &Config, owner: Option<&LastOwner>) -> Vec<PathBuf> {
    let mut places = vec![config.run_dir.join(&config.driver_name)];
    places.extend(owner.and_then(|owner| owner.run_dir.clone()));
    for parent in [config.run_dir.as_path(), Path::new(DEFAULT_RUN_DIR)] {
        let Ok(entries) = parent.read_dir() else { continue };
        let mut beside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        beside.retain(|path| path.join("pools").is_dir());
        beside.sort();
        places.extend(beside);
    }
    let mut seen = Vec::new();
    let mut is_new = |place: &PathBuf| {
        let key = match place.metadata() {
            Ok(there) => (PathBuf::new(), there.dev(), there.ino()),
            Err(_) => (place.clone(), 0, 0),
        };
        let is_new = !seen.contains(&key);
        if is_new {
            seen.push(key);
        }
        is_new
    };
    places.retain(&mut is_new);
    places
}
