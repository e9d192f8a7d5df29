//! The files of a cgroup hierarchy, in which groups come and go at any time.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::crash;
use crate::error::{Context, Result};

pub(super) enum WriteOutcome {
    Done,
    NoSuchFile,
    NoSuchDevice,
    GroupGone,
}

/// How long the removal of a group may take: its directory stays for a moment after the kernel has begun to
/// remove it.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// `line` begins with the number of a device.
pub(super) fn write_line(group: &Path, file: &str, line: &str) -> Result<WriteOutcome> {
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    loop {
        let written = try_write_line(group, file, line)?;
        let is_unlikely = matches!(written, WriteOutcome::NoSuchDevice) && names_a_device(line);
        if !is_unlikely || Instant::now() >= deadline {
            return Ok(written);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn names_a_device(line: &str) -> bool {
    let number = line.split_whitespace().next().unwrap_or_default();
    Path::new("/sys/dev/block").join(number).exists()
}

fn try_write_line(group: &Path, file: &str, line: &str) -> Result<WriteOutcome> {
    let path = group.join(file);
    let written = OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut opened| opened.write_all(line.as_bytes()));
    // A group that is being removed answers ENODEV, as an unknown device does.
    match written.as_ref().map_err(Errno::from_io_error) {
        Ok(()) => {
            crash::after("limit a device");
            Ok(WriteOutcome::Done)
        }
        Err(Some(Errno::NOENT | Errno::NODEV)) if !group.exists() => Ok(WriteOutcome::GroupGone),
        Err(Some(Errno::NOENT)) => Ok(WriteOutcome::NoSuchFile),
        Err(Some(Errno::NODEV | Errno::NXIO)) => Ok(WriteOutcome::NoSuchDevice),
        Err(_) => written.map(|()| WriteOutcome::Done).on("write", &path),
    }
}

/// The groups directly below; none if the group itself is gone.
pub(super) fn subgroups(group: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.on("list", group)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        match entry.and_then(|entry| Ok((entry.file_type()?.is_dir(), entry.path()))) {
            Ok((true, path)) => found.push(path),
            Ok((false, _)) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error).on("list", group),
        }
    }
    Ok(found)
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV))
}

pub(super) fn read_words(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).on("read", path)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}
