//! What can be seen on the node when the plugin's paths are this process's paths.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use super::{CheckContext, held};
use crate::check::Outcome;

/// A line of the mount table.
#[derive(Debug, Clone)]
pub struct Mounted {
    pub fs_type: String,
    /// Of this mount: `ro`, `noatime`.
    pub options: Vec<String>,
    /// Of the filesystem.
    pub super_options: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct Statfs {
    pub total_bytes: u64,
    pub total_inodes: u64,
}

impl CheckContext {
    /// A new, empty directory, as an orchestrator makes it before it stages.
    pub fn staging_path(&self) -> Outcome<String> {
        let path = self.options().staging_dir.join(self.name("stage"));
        self.made_directory(&path)?;
        self.text_of(&path)
    }

    /// A path that is not there, in a directory that is.
    pub fn target_path(&self) -> Outcome<String> {
        let parent = self.options().target_dir.join(self.name("target"));
        self.made_directory(&parent)?;
        self.text_of(&parent.join("volume"))
    }

    /// Makes a directory that is removed at the end; nothing, where paths are not ours to see.
    pub fn made_directory(&self, path: &Path) -> Outcome {
        if !self.options().local_files {
            return Ok(());
        }
        self.could(fs::create_dir_all(path), "make", path)?;
        held(&self.directories).push(path.to_owned());
        Ok(())
    }

    pub(super) fn text_of(&self, path: &Path) -> Outcome<String> {
        self.some(path.to_str().map(str::to_owned), "a directory whose name is text")
    }

    /// The value, or a failure that names the path.
    pub fn could<T>(&self, result: std::io::Result<T>, what: &str, path: &Path) -> Outcome<T> {
        result.map_err(|error| {
            self.failed(format!("to be able to {what} {}: {error}", path.display()))
        })
    }

    /// Everything mounted at exactly this path, the topmost last.
    pub fn mounts_at(&self, path: &Path) -> Outcome<Vec<Mounted>> {
        let table = self.mount_table()?;
        Ok(table.lines().filter_map(|line| mounted_at(line, path)).collect())
    }

    /// How many mounts there are at this path and below.
    pub fn mounts_below(&self, path: &Path) -> Outcome<usize> {
        let table = self.mount_table()?;
        Ok(table.lines().filter(|line| is_below(line, path)).count())
    }

    /// Numbers (`7:3`) of the devices that are mounted at this path and below; `/` for all. That of a loop device
    /// has its file beside it: after a detach, its number goes to the next device that any program attaches.
    pub fn devices_below(&self, path: &Path) -> Outcome<BTreeSet<String>> {
        let table = self.mount_table()?;
        let there = table.lines().filter(|line| is_below(line, path));
        Ok(there.filter_map(number_of).map(with_backing_file).collect())
    }

    fn mount_table(&self) -> Outcome<String> {
        let table = Path::new("/proc/self/mountinfo");
        self.could(fs::read_to_string(table), "read", table)
    }

    pub fn is_mounted(&self, path: &Path) -> Outcome<bool> {
        Ok(!self.mounts_at(path)?.is_empty())
    }

    pub fn statfs(&self, path: &Path) -> Outcome<Statfs> {
        let found = rustix::fs::statvfs(path).map_err(std::io::Error::from);
        let found = self.could(found, "ask for the size of", path)?;
        let total_bytes = found.f_blocks.saturating_mul(found.f_frsize);
        Ok(Statfs { total_bytes, total_inodes: found.f_files })
    }

    /// Writes a file and makes it durable.
    pub fn write_file(&self, path: &Path, content: &[u8]) -> Outcome {
        self.could(try_write(path, content), "write", path)
    }

    pub fn read_file(&self, path: &Path) -> Outcome<Vec<u8>> {
        self.could(fs::read(path), "read", path)
    }

    /// Can a workload write there? A new file below a directory, a byte of a device.
    pub fn is_writable(&self, target: &Path) -> bool {
        if target.is_dir() {
            let probe = target.join(".conformance-write-probe");
            let written = try_write(&probe, b"probe").is_ok();
            // It may not be there; a read-only mount is a good reason.
            let _ = fs::remove_file(&probe);
            return written;
        }
        let device = OpenOptions::new().read(true).write(true).open(target);
        device.and_then(|device| rewrite_first_byte(&device)).is_ok()
    }

    pub fn is_block_device(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    }

    /// Writes to a device and makes it durable.
    pub fn write_device(&self, path: &Path, offset: u64, content: &[u8]) -> Outcome {
        let written = OpenOptions::new().write(true).open(path).and_then(|device| {
            device.write_all_at(content, offset)?;
            device.sync_all()
        });
        self.could(written, "write to the device", path)
    }

    pub fn read_device(&self, path: &Path, offset: u64, length: usize) -> Outcome<Vec<u8>> {
        let read = File::open(path).and_then(|device| {
            let mut content = vec![0; length];
            device.read_exact_at(&mut content, offset)?;
            Ok(content)
        });
        self.could(read, "read from the device", path)
    }

    pub fn device_size(&self, path: &Path) -> Outcome<u64> {
        use std::io::{Seek, SeekFrom};
        let size = File::open(path).and_then(|mut device| device.seek(SeekFrom::End(0)));
        self.could(size, "ask for the size of the device", path)
    }

    /// Is there anything at the path?
    pub fn exists(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok()
    }
}

fn try_write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn rewrite_first_byte(mut device: &File) -> std::io::Result<()> {
    let mut first = [0];
    device.read_exact(&mut first)?;
    device.write_all_at(&first, 0)?;
    device.sync_all()
}

/// Octal escapes stand for blanks and backslashes in paths.
fn point_of(line: &str) -> Option<PathBuf> {
    let escaped = line.split(' ').nth(4)?;
    Some(escaped.replace("\\040", " ").replace("\\134", "\\").into())
}

fn is_below(line: &str, path: &Path) -> bool {
    point_of(line).is_some_and(|point| point.starts_with(path))
}

fn number_of(line: &str) -> Option<&str> {
    line.split(' ').nth(2)
}

fn with_backing_file(number: &str) -> String {
    let file = fs::read_to_string(format!("/sys/dev/block/{number}/loop/backing_file"));
    format!("{number} {}", file.unwrap_or_default().trim_end())
}

fn mounted_at(line: &str, path: &Path) -> Option<Mounted> {
    if point_of(line)? != path {
        return None;
    }
    let (before, after) = line.split_once(" - ")?;
    let fields: Vec<_> = before.split(' ').collect();
    let words = |text: &str| text.split(',').map(str::to_owned).collect();
    let mut after = after.split(' ');
    let fs_type = after.next()?.to_owned();
    let super_options = after.nth(1).map(words).unwrap_or_default();
    Some(Mounted { fs_type, options: words(fields.get(5)?), super_options })
}
