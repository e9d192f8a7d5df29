//! The temporary file of an export. It is beside the target, and is renamed when it is complete.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use orlop_sys::file::{self, RenameOutcome};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// The data of a volume is readable by its owner alone, as in the pool.
const MODE: u32 = 0o600;

/// Locked while it is written, so that another export to the same file does not take it for abandoned.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) file: File,
    pub(super) path: PathBuf,
    target: PathBuf,
    is_finished: bool,
}

impl Partial {
    pub(super) fn create(target: &Path) -> Result<Self, String> {
        let path = path_beside(target);
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(MODE);
            match options.open(&path) {
                Ok(file) => {
                    if !locked(&file)? {
                        return Err(IN_USE.to_owned());
                    }
                    // Another command may have removed it as abandoned before it was locked.
                    if is_still_at(&path, &file)? {
                        let target = target.to_owned();
                        return Ok(Self { file, path, target, is_finished: false });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    remove_abandoned(&path)?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Renames this very file to the target.
    pub(super) fn finish(mut self, replaces: bool) -> Result<(), String> {
        let text = |error: orlop_sys::Error| error.to_string();
        if !is_still_at(&self.path, &self.file)? {
            return Err(
                "another program removed it while it was written; export it again".to_owned()
            );
        }
        if replaces {
            refuse_other_than_file(&self.target)?;
            std::fs::rename(&self.path, &self.target).map_err(|error| error.to_string())?;
            self.is_finished = true;
            return file::sync_dir(self.target.parent().unwrap_or(Path::new("/"))).map_err(text);
        }
        match file::rename_new(&self.path, &self.target).map_err(text)? {
            RenameOutcome::Renamed => {
                self.is_finished = true;
                Ok(())
            }
            RenameOutcome::TargetExists => {
                Err("it was created during the export; pass --overwrite to replace it".to_owned())
            }
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_finished && is_still_at(&self.path, &self.file).unwrap_or(false) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

const IN_USE: &str = "another export is writing it; wait for its end, or name another file";

fn path_beside(target: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".partial");
    target.with_file_name(name)
}

/// A rename over a device node or a pipe would replace it, and the device would not get the data.
pub(super) fn refuse_other_than_file(target: &Path) -> Result<(), String> {
    match target.symlink_metadata() {
        Ok(there) if there.is_dir() => Err("it is a directory; name a file".to_owned()),
        Ok(there) if !there.is_file() => Err(
            "it is not a regular file, and is not replaced by one; export to a file, and copy that to a device".to_owned(),
        ),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// An abandoned file is not reused, because another process may have it open.
fn remove_abandoned(path: &Path) -> Result<(), String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let abandoned = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(format!("cannot open {}: {error}; remove it first", path.display()));
        }
    };
    if !locked(&abandoned)? {
        return Err(IN_USE.to_owned());
    }
    if is_still_at(path, &abandoned)? {
        file::ensure_no_file(path).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn locked(file: &File) -> Result<bool, String> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(format!("it cannot be locked: {errno}")),
    }
}

fn is_still_at(path: &Path, file: &File) -> Result<bool, String> {
    file::is_still_at(path, file).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
