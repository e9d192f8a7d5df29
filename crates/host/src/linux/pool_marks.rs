//! `pools/ID` in the run directory: that a pool was served since this machine started, by which name and
//! from which path, and the stamp that the pool has too (decision 0043).

use std::path::{Path, PathBuf};

use orlop_model::{PoolId, Result};
use serde::{Deserialize, Serialize};

use super::run_files::RunFiles;

/// A pool that a daemon with this run directory has served since this machine started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedPool {
    pub id: PoolId,
    pub name: String,
    pub path: PathBuf,
    /// The file that says so.
    pub marker: PathBuf,
}

/// In files of earlier versions there is only the stamp.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PoolMark {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stamp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

impl PoolMark {
    fn parse(contents: &[u8]) -> Self {
        serde_json::from_slice(contents).unwrap_or_else(|_| {
            let stamp = Some(String::from_utf8_lossy(contents).into_owned());
            Self { stamp, ..Self::default() }
        })
    }
}

pub(super) struct PoolMarks {
    files: RunFiles,
}

impl PoolMarks {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { files: RunFiles::new(directory) }
    }

    pub(super) fn is_stamped(&self, id: &PoolId, stamp: &str) -> Result<bool> {
        Ok(self.read(id)?.and_then(|mark| mark.stamp).is_some_and(|marked| marked == stamp))
    }

    pub(super) fn is_marked(&self, id: &PoolId) -> Result<bool> {
        Ok(self.read(id)?.is_some())
    }

    /// Without a stamp where not all that is used of the pool is recorded here.
    pub(super) fn ensure(
        &self,
        id: &PoolId,
        stamp: Option<&str>,
        name: &str,
        path: &Path,
    ) -> Result<()> {
        let mark = PoolMark {
            stamp: stamp.map(str::to_owned),
            name: Some(name.to_owned()),
            path: Some(path.to_string_lossy().into_owned()),
        };
        self.write(id, &mark)
    }

    /// Removes the stamp and keeps the rest: that the pool was served here.
    pub(super) fn ensure_unstamped(&self, id: &PoolId) -> Result<()> {
        match self.read(id)? {
            None => Ok(()),
            Some(mark) => self.write(id, &PoolMark { stamp: None, ..mark }),
        }
    }

    /// Pools that were served here, as far as their names and paths are known.
    pub(super) fn served(&self) -> Result<Vec<ServedPool>> {
        let mut served = Vec::new();
        for name in self.files.names()? {
            let Ok(id) = name.parse::<PoolId>() else { continue };
            let Some(mark) = self.read(&id)? else { continue };
            if let PoolMark { name: Some(name), path: Some(path), .. } = mark {
                let marker = self.files.path(&id.to_string());
                served.push(ServedPool { id, name, path: path.into(), marker });
            }
        }
        Ok(served)
    }

    fn read(&self, id: &PoolId) -> Result<Option<PoolMark>> {
        Ok(self.files.read(&id.to_string())?.map(|contents| PoolMark::parse(&contents)))
    }

    fn write(&self, id: &PoolId, mark: &PoolMark) -> Result<()> {
        if *mark == PoolMark::default() {
            return self.files.ensure_removed(&id.to_string());
        }
        if self.read(id)?.as_ref() == Some(mark) {
            return Ok(());
        }
        let contents = serde_json::to_vec(mark).map_err(|error| {
            orlop_model::Error::failed(
                format!("write the marker of pool {id}"),
                orlop_model::Reason::of(error),
            )
        })?;
        self.files.write(&id.to_string(), &contents)
    }
}

#[cfg(test)]
mod tests;
