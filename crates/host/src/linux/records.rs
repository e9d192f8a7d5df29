//! Node records: one JSON file for each volume that is in use here.

use std::path::PathBuf;

use orlop_model::{Error, NodeRecord, Reason, Result, VolumeId};

use super::run_files::RunFiles;

const SUFFIX: &str = ".json";

pub(super) struct NodeRecords {
    files: RunFiles,
}

impl NodeRecords {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { files: RunFiles::new(directory) }
    }

    pub(super) fn read(&self, id: &VolumeId) -> Result<NodeRecord> {
        let name = file_name(id);
        let damaged = |error: &dyn std::fmt::Display| {
            let path = self.files.path(&name);
            Error::damaged(format!("the node record {}", path.display()), error)
        };
        if self.files.is_directory(&name)? {
            return Err(damaged(&"it is a directory"));
        }
        let Some(contents) = self.files.read(&name)? else {
            return Ok(NodeRecord::default());
        };
        parse(&contents).map_err(|error| damaged(&error))
    }

    pub(super) fn path(&self, id: &VolumeId) -> PathBuf {
        self.files.path(&file_name(id))
    }

    /// Out of the way of the next record, for someone to look at. It goes with the next reboot.
    pub(super) fn set_aside(&self, id: &VolumeId) -> Result<PathBuf> {
        let name = file_name(id);
        let mut aside = format!("{name}.damaged");
        for number in 1.. {
            if !self.files.has(&aside)? {
                break;
            }
            aside = format!("{name}.damaged.{number}");
        }
        self.files.rename(&name, &aside)?;
        Ok(self.files.path(&aside))
    }

    pub(super) fn save(&self, id: &VolumeId, record: &NodeRecord) -> Result<()> {
        let name = file_name(id);
        if record.is_empty() {
            return self.files.ensure_removed(&name);
        }
        let contents = to_text(record).map_err(|error| {
            Error::failed(format!("write the node record of volume {id}"), Reason::of(error))
        })?;
        self.files.write(&name, &contents)
    }

    /// In the order of ids. What is not named after a volume is passed over.
    pub(super) fn ids(&self) -> Result<Vec<VolumeId>> {
        let names = self.files.names()?;
        let mut ids: Vec<VolumeId> =
            names.iter().filter_map(|name| name.strip_suffix(SUFFIX)?.parse().ok()).collect();
        ids.sort_unstable();
        Ok(ids)
    }
}

pub(crate) fn parse(contents: &[u8]) -> serde_json::Result<NodeRecord> {
    serde_json::from_slice(contents)
}

pub(crate) fn to_text(record: &NodeRecord) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec_pretty(record)
}

fn file_name(id: &VolumeId) -> String {
    format!("{id}{SUFFIX}")
}

#[cfg(test)]
mod tests;
