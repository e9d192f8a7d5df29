//! Regular files that are opened by their own name.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FileType, OFlags, fstat};

use crate::error::{Context, Error, Result};
use crate::resolve::open_without_waiting;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    Read,
    ReadWrite,
}

/// A link is not followed, and anything else than a regular file is refused. A lease of another program
/// is not waited for: the error is one that [`Error::leased_file`] knows, and the kernel has asked that
/// program to give the lease up.
pub fn open_regular(path: &Path, access: FileAccess) -> Result<File> {
    let flags = match access {
        FileAccess::Read => OFlags::RDONLY,
        FileAccess::ReadWrite => OFlags::RDWR,
    };
    let file = open_without_waiting("open", path, flags)?;
    if FileType::from_raw_mode(fstat(&file).on("inspect", path)?.st_mode) != FileType::RegularFile {
        return Err(Error::refused("open", path, "it is not a regular file"));
    }
    Ok(File::from(file))
}

#[cfg(test)]
mod tests;
