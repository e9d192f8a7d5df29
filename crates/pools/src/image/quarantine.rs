//! `set-aside/`: what was found where it does not belong. It is never deleted by Orlop, for it may
//! be the last copy of something; it only stops being in the way.

use std::path::Path;

use orlop_model::Result;
use orlop_sys::file::{self, RenameOutcome};

use super::failure::cannot;
use super::layout::{Layout, ensure_private_directory};

/// Moves a directory away, durably. A crash before the rename leaves it where it was, and after
/// it the next look does not find it any more.
pub(super) fn quarantine(layout: &Layout, from: &Path) -> Result<()> {
    let moving = || format!("quarantine {}", from.display());
    let directory = layout.quarantine();
    ensure_private_directory(&directory)?;
    file::sync_dir(layout.root()).map_err(cannot(moving))?;
    let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 0_u32.. {
        match file::rename_new(from, &directory.join(format!("{name}.{number}"))) {
            Ok(RenameOutcome::Renamed) => break,
            Ok(RenameOutcome::TargetExists) => {}
            Err(error) if error.is_not_found() => break,
            Err(error) => return Err(cannot(moving)(error)),
        }
    }
    Ok(())
}

pub(super) fn count(layout: &Layout) -> usize {
    std::fs::read_dir(layout.quarantine()).map_or(0, Iterator::count)
}
