//! Copying between a file and a device, without what is zero, and comparing the two afterwards.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::Errno;

use crate::failure::{Failure, Result};
use crate::interrupt::Stop;
use crate::progress::Progress;

const CHUNK: usize = 1 << 20;

/// A file or a device, and the name by which messages call it.
pub(super) struct Side {
    pub(super) file: File,
    pub(super) path: PathBuf,
}

impl Side {
    pub(super) fn open(path: &Path, write: bool) -> Result<Self> {
        let opened = File::options().read(true).write(write).open(path);
        let file = opened
            .map_err(|error| Failure::failed(format!("cannot open {}: {error}", path.display())))?;
        Ok(Self { file, path: path.to_owned() })
    }

    fn failed(&self, doing: &str, error: &std::io::Error) -> Failure {
        Failure::failed(format!("cannot {doing} {}: {error}", self.path.display()))
    }

    /// Files may be holes from here on; where nothing is known, all counts as data.
    fn next_data(&self, offset: u64) -> Option<u64> {
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(at) => Some(at),
            Err(Errno::NXIO) => None,
            Err(_) => Some(offset),
        }
    }
}

/// What is zero is left as it is: the target is new, and comparing them later shows if it was not empty.
/// Returns how many bytes were written.
pub(super) fn copy(doing: &str, from: &Side, to: &Side, length: u64, stop: &Stop) -> Result<u64> {
    let mut progress = Progress::new(doing, length);
    let mut buffer = vec![0; CHUNK];
    let (mut offset, mut written) = (0, 0);
    while let Some(at) = from.next_data(offset).filter(|at| *at < length) {
        stop.check()?;
        // From the start of its chunk, so that both sides are written in whole blocks.
        offset = at - at % as_u64(CHUNK);
        let part = part_of(&mut buffer, length - offset);
        from.file.read_exact_at(part, offset).map_err(|error| from.failed("read", &error))?;
        if part.iter().any(|byte| *byte != 0) {
            to.file.write_all_at(part, offset).map_err(|error| to.failed("write to", &error))?;
            written += as_u64(part.len());
        }
        offset += as_u64(part.len());
        progress.at(offset);
    }
    to.file.sync_all().map_err(|error| to.failed("write out", &error))?;
    Ok(written)
}

/// Byte for byte, from the disk rather than from memory.
pub(super) fn compare(from: &Side, to: &Side, length: u64, stop: &Stop) -> Result<()> {
    // Advice that is not taken costs nothing but the proof that the disk has it.
    let _ = fadvise(&to.file, 0, None, Advice::DontNeed);
    let mut progress = Progress::new("compare", length);
    let (mut expected, mut found) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut offset = 0;
    while offset < length {
        stop.check()?;
        let expected = part_of(&mut expected, length - offset);
        let found = part_of(&mut found, length - offset);
        from.file.read_exact_at(expected, offset).map_err(|error| from.failed("read", &error))?;
        to.file.read_exact_at(found, offset).map_err(|error| to.failed("read", &error))?;
        if let Some(at) = expected.iter().zip(found.iter()).position(|(a, b)| a != b) {
            return Err(Failure::failed(format!(
                "{} and {} differ at byte {}: was one of them written to at the same time?",
                from.path.display(),
                to.path.display(),
                offset + as_u64(at)
            )));
        }
        offset += as_u64(expected.len());
        progress.at(offset);
    }
    Ok(())
}

fn part_of(buffer: &mut [u8], left: u64) -> &mut [u8] {
    let length = usize::try_from(left).unwrap_or(CHUNK).min(buffer.len());
    &mut buffer[..length]
}

fn as_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
