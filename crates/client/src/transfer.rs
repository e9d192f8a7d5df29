//! Volumes from and to files: `orlop volume import` and `export`, `orlop snapshot export`.

mod containers;
mod copy;
mod export;
mod fill;
mod image;
mod import;
mod partial;
mod qcow2;
mod unfinished;

pub(crate) use export::{ExportArguments, SnapshotExportArguments, export, export_snapshot};
pub(crate) use import::{ImportArguments, import};
pub(crate) use unfinished::forget_volume;

use std::path::PathBuf;

use crate::failure::Failure;
use crate::failure::Result;
use crate::hand_mounts::{ensure_directory, volume_digest};
use crate::session::Session;

/// Where the raw device of a volume appears while it is copied.
fn device_path(session: &Session, what: &str) -> Result<PathBuf> {
    let above = session.directory.join("transfer");
    ensure_directory(&session.directory, &above)
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(above.join(volume_digest(&session.plugin.driver, what)))
}
