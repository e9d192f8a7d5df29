//! Volumes of which the kernel has lost what a workload wrote. It tells that once, so it is kept in the run
//! directory, as a reboot ends the mount as well.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_model::{Result, VolumeId};

use super::run_files::{NodeRecords, RunFiles};

pub(super) struct LostWrites {
    files: RunFiles,
    known: Mutex<BTreeMap<VolumeId, String>>,
}

impl LostWrites {
    /// A daemon may have been killed after it unstaged a volume and before it removed the file.
    pub(super) fn load(directory: PathBuf, records: &NodeRecords) -> Result<Self> {
        let files = RunFiles::new(directory);
        let mut known = BTreeMap::new();
        for name in files.names()? {
            let Ok(id) = name.parse::<VolumeId>() else { continue };
            // A record that cannot be read may be of a volume that is staged.
            if records.read(&id).is_ok_and(|record| record.stage.is_none()) {
                files.ensure_removed(&name)?;
                continue;
            }
            let reason = files.read(&name)?.and_then(|bytes| String::from_utf8(bytes).ok());
            known.insert(id, reason.unwrap_or_else(|| "the reason was not recorded".to_owned()));
        }
        Ok(Self { files, known: Mutex::new(known) })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<VolumeId, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, id: &VolumeId) -> Option<String> {
        self.known().get(id).cloned()
    }

    /// Known to this process even if the file cannot be written. False: it was known before.
    pub(super) fn note(&self, id: &VolumeId, reason: &str) -> Result<bool> {
        let mut known = self.known();
        if known.contains_key(id) {
            return Ok(false);
        }
        known.insert(id.clone(), reason.to_owned());
        self.files.write(&id.to_string(), reason.as_bytes()).map(|()| true)
    }

    pub(super) fn forget(&self, id: &VolumeId) -> Result<()> {
        let mut known = self.known();
        if known.contains_key(id) {
            self.files.ensure_removed(&id.to_string())?;
            known.remove(id);
        }
        Ok(())
    }
}
