//! Small files of the run directory: node records, and markers of what must be undone if this process
//! ends too early.

use std::io::ErrorKind;
use std::path::PathBuf;

use orlop_model::{Error, HostRecords, NodeRecord, Reason, Result, VolumeId};
use orlop_sys::file;

use super::LinuxHost;
use super::failure::{cannot, cannot_io};

const LONGEST: usize = 1 << 20;

const RECORD_SUFFIX: &str = ".json";

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
        const DOING: &str = "write to the run directory";
        file::replace_file_until_reboot(&self.directory, name, contents).map_err(|error| {
            if !error.is_not_found() {
                return cannot(DOING)(error);
            }
            let reason = format!(
                "{} was removed; restart the daemon, which makes it again, then stage and publish volumes \
                 in use again with the same arguments",
                self.directory.display()
            );
            Error::failed(DOING, Reason::explained(reason, error))
        })
    }

    /// `None`: there is no such file.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name);
        match file::read_small(&path, LONGEST) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) if error.is_refusal() => {
                Err(Error::damaged(format!("the file {}", path.display()), error.cause()))
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
        file::ensure_no_file(&self.path(name))
            .map_err(cannot("remove a file from the run directory"))
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

/// One JSON file for each volume that is in use here.
pub(super) struct NodeRecords {
    files: RunFiles,
}

impl HostRecords for LinuxHost {
    fn node_record(&self, id: &VolumeId) -> Result<NodeRecord> {
        match self.records.read(id) {
            Err(Error::Damaged { what, reason }) => {
                // First: the doctor must not take what is in use for an orphan (decision 0031).
                self.pool_marks().ensure_unstamped(id.pool())?;
                let aside = self.records.set_aside(id)?;
                tracing::warn!(
                    volume = %id,
                    reason,
                    aside = %aside.display(),
                    "cannot read {what}; moved it aside, and asking the kernel what is in use"
                );
                Ok(NodeRecord::default())
            }
            read => read,
        }
    }

    fn save_node_record(&self, id: &VolumeId, record: &NodeRecord) -> Result<()> {
        self.records.save(id, record)?;
        match record.stage {
            Some(_) => Ok(()),
            None => self.lost_writes.forget(id),
        }
    }

    fn node_records(&self) -> Result<Vec<VolumeId>> {
        self.records.ids()
    }

    fn lost_writes(&self, id: &VolumeId) -> Option<String> {
        self.lost_writes.of(id)
    }

    fn note_lost_writes(&self, id: &VolumeId, reason: &str) -> Result<bool> {
        self.lost_writes.note(id, reason)
    }
}

impl NodeRecords {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { files: RunFiles::new(directory) }
    }

    pub(super) fn read(&self, id: &VolumeId) -> Result<NodeRecord> {
        let name = record_name(id);
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
        parse_record(&contents).map_err(|error| damaged(&error))
    }

    pub(super) fn path(&self, id: &VolumeId) -> PathBuf {
        self.files.path(&record_name(id))
    }

    /// Renames the file, for an operator to inspect. A reboot removes it with the run directory.
    pub(super) fn set_aside(&self, id: &VolumeId) -> Result<PathBuf> {
        let name = record_name(id);
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
        let name = record_name(id);
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
        let mut ids: Vec<VolumeId> = names
            .iter()
            .filter_map(|name| name.strip_suffix(RECORD_SUFFIX)?.parse().ok())
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }
}

pub(crate) fn parse_record(contents: &[u8]) -> serde_json::Result<NodeRecord> {
    serde_json::from_slice(contents)
}

pub(crate) fn to_text(record: &NodeRecord) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec_pretty(record)
}

fn record_name(id: &VolumeId) -> String {
    format!("{id}{RECORD_SUFFIX}")
}

#[cfg(test)]
mod tests;
