//! Exports that another daemon of this node has made: one with another run directory or another
//! driver name, hence another directory of exports.
//!
//! Their clients are registered under the same node as our own, and live on. So a volume that has no
//! export in our directory may have a registered client that is alive.

use std::path::{Path, PathBuf};

use orlop_model::{Error, Result, VolumeId};
use orlop_sys::loopdev;
use orlop_sys::rbd_export::Export;

use super::super::session::cannot;
use super::Exports;

impl Exports {
    /// Refused if the client that is registered for this node serves a device of this machine for
    /// another daemon: its workload would get errors if it were fenced.
    pub(super) fn check_not_exported_elsewhere(
        &self,
        id: &VolumeId,
        registered: &str,
    ) -> Result<()> {
        for (exported, directory) in self.exports_elsewhere()? {
            if exported == *id && self.is_client_of(id, registered, &directory)? {
                return Err(Error::precondition(format!(
                    "cannot attach volume {id}: it is attached to this machine by a daemon with {}; unpublish and \
                     unstage it with that ORLOP_RUN_DIR and ORLOP_DRIVER_NAME",
                    where_it_is(&directory)
                )));
            }
        }
        Ok(())
    }

    pub(super) fn report_exported_elsewhere(&self) -> Result<()> {
        for (id, directory) in self.exports_elsewhere()? {
            let registered = self.fencing.own_writer(&id)?;
            if let Some(registered) = registered
                && self.is_client_of(&id, &registered, &directory)?
            {
                tracing::warn!(
                    volume = %id,
                    directory = %directory.display(),
                    "the volume is attached to this machine by a daemon with another run directory \
                     or driver name; left alone, as it may be in use; unpublish and unstage it with \
                     those settings"
                );
            }
        }
        Ok(())
    }

    /// Exports for writers of this pool's volumes that devices of this machine are on, by directory.
    fn exports_elsewhere(&self) -> Result<Vec<(VolumeId, PathBuf)>> {
        let listing = || "list the loop devices".to_owned();
        let devices = loopdev::all_backed().map_err(cannot(listing))?;
        let own = |directory: &Path| self.devices.holds(directory);
        let mut found = Vec::new();
        for device in devices {
            let Some(directory) = device.file.parent().filter(|directory| !own(directory)) else {
                continue;
            };
            let named = directory.file_name().and_then(|name| name.to_str()?.parse().ok());
            if let Some(id) = named.filter(|id: &VolumeId| id.pool() == &self.info.id)
                && Export::at(directory.to_owned()).file() == device.file
            {
                found.push((id, directory.to_owned()));
            }
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    fn is_client_of(&self, id: &VolumeId, registered: &str, directory: &Path) -> Result<bool> {
        let looking = || format!("inspect the export of volume {id} in {}", directory.display());
        let export = Export::at(directory.to_owned());
        if export.exists()
            && export.remembered_address().map_err(cannot(looking))?.as_deref() != Some(registered)
        {
            return Ok(false);
        }
        // Where the directory or the process is out of sight of this container, the cluster still
        // knows whether the client lives.
        Ok(export.is_running().map_err(cannot(looking))?
            || self.fencing.is_own_writer_watching(id)?)
    }
}

/// As the operator has set it: the directory of an export is RUN_DIR/DRIVER_NAME/exports/VOLUME.
fn where_it_is(directory: &Path) -> String {
    let exports = directory.parent();
    let driver = exports.filter(|it| it.ends_with("exports")).and_then(Path::parent);
    match driver.and_then(|driver| Some((driver.parent()?, driver.file_name()?.to_str()?))) {
        Some((run, name)) => format!("run directory {} and driver name {name}", run.display()),
        None => format!("its export in {}", directory.display()),
    }
}
