//! Copying between a file and a device, without what is zero, and comparing the two afterwards.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::Errno;

use crate::failure::{Failure, Result};
use crate::interrupt::StopFlag;
use crate::progress::Progress;

pub(super) const CHUNK: usize = 1 << 20;

/// Where a copy comes from: a raw image or device, or an image of another format.
pub(super) trait Source {
    fn path(&self) -> &Path;

    fn read_exact_at(&mut self, part: &mut [u8], offset: u64) -> io::Result<()>;

    /// The offset of the next data, from `offset` on: everything before it is zero.
    fn next_data(&mut self, offset: u64) -> io::Result<Option<u64>>;
}

fn unreadable(from: &dyn Source, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot read {}: {error}", from.path().display()))
}

/// An open file or device, with its path for messages.
pub(super) struct NamedFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
}

impl NamedFile {
    pub(super) fn open(path: &Path, write: bool) -> Result<Self> {
        let opened = File::options().read(true).write(write).open(path);
        let file = opened
            .map_err(|error| Failure::failed(format!("cannot open {}: {error}", path.display())))?;
        Ok(Self { file, path: path.to_owned() })
    }

    pub(super) fn length(&self) -> Result<u64> {
        seek(&self.file, SeekFrom::End(0))
            .map_err(|errno| self.failed("find the end of", &errno.into()))
    }

    pub(super) fn failed(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::failed(format!("cannot {doing} {}: {error}", self.path.display()))
    }
}

impl Source for NamedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_exact_at(&mut self, part: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(part, offset)
    }

    /// Without SEEK_DATA, everything counts as data.
    fn next_data(&mut self, offset: u64) -> io::Result<Option<u64>> {
        Ok(match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(at) => Some(at),
            Err(Errno::NXIO) => None,
            Err(_) => Some(offset),
        })
    }
}

/// What is in the target before anything is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// It is new: what is zero is left as it is, and comparing them later shows if it was not empty.
    Blank,
    /// What is zero in the source becomes zero.
    Used,
}

/// Of a range that begins at a multiple of [`CHUNK`]. Returns how many bytes were written.
pub(super) fn copy(
    doing: &str,
    from: &mut dyn Source,
    to: &NamedFile,
    range: Range<u64>,
    target: Target,
    stop: &StopFlag,
) -> Result<u64> {
    let length = range.end;
    let mut progress = Progress::new(doing, length);
    let mut buffer = vec![0; CHUNK];
    let (mut offset, mut written) = (range.start, 0);
    loop {
        let next = match target {
            Target::Blank => from.next_data(offset).map_err(|error| unreadable(from, &error))?,
            Target::Used => Some(offset),
        };
        let Some(at) = next.filter(|at| *at < length) else { break };
        stop.check()?;
        // From the start of its chunk, so that both sides are written in whole blocks.
        offset = at - at % as_u64(CHUNK);
        let part = part_of(&mut buffer, length - offset);
        from.read_exact_at(part, offset).map_err(|error| unreadable(from, &error))?;
        if !is_all_zero(part) {
            to.file.write_all_at(part, offset).map_err(|error| to.failed("write to", &error))?;
            written += as_u64(part.len());
        } else if target == Target::Used {
            ensure_zero(to, offset, part)?;
        }
        offset += as_u64(part.len());
        progress.at(offset);
    }
    to.file.sync_all().map_err(|error| to.failed("write out", &error))?;
    Ok(written)
}

/// Writes zeroes where there is anything else.
pub(super) fn clear(to: &NamedFile, range: Range<u64>, stop: &StopFlag) -> Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut offset = range.start;
    while offset < range.end {
        stop.check()?;
        let part = part_of(&mut buffer, range.end - offset);
        ensure_zero(to, offset, part)?;
        offset += as_u64(part.len());
    }
    to.file.sync_all().map_err(|error| to.failed("write out", &error))
}

/// `zeroes` is used to read, and is zero again afterwards.
fn ensure_zero(to: &NamedFile, offset: u64, zeroes: &mut [u8]) -> Result<()> {
    to.file.read_exact_at(zeroes, offset).map_err(|error| to.failed("read", &error))?;
    if is_all_zero(zeroes) {
        return Ok(());
    }
    zeroes.fill(0);
    to.file.write_all_at(zeroes, offset).map_err(|error| to.failed("write to", &error))
}

pub(super) fn is_zero(device: &NamedFile, length: u64, stop: &StopFlag) -> Result<bool> {
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    while offset < length {
        stop.check()?;
        let part = part_of(&mut buffer, length - offset);
        device.file.read_exact_at(part, offset).map_err(|error| device.failed("read", &error))?;
        if !is_all_zero(part) {
            return Ok(false);
        }
        offset += as_u64(part.len());
    }
    Ok(true)
}

fn is_all_zero(part: &[u8]) -> bool {
    part.iter().all(|byte| *byte == 0)
}

pub(super) fn compare(
    from: &mut dyn Source,
    to: &NamedFile,
    range: Range<u64>,
    stop: &StopFlag,
) -> Result<()> {
    match first_difference(from, to, range, stop)? {
        None => Ok(()),
        Some(at) => Err(Failure::failed(format!(
            "cannot verify the copy: {} and {} differ at byte {at}; was one of them written to at the same time?",
            from.path().display(),
            to.path.display()
        ))),
    }
}

/// Byte for byte, from the disk rather than from memory.
pub(super) fn first_difference(
    from: &mut dyn Source,
    to: &NamedFile,
    range: Range<u64>,
    stop: &StopFlag,
) -> Result<Option<u64>> {
    // Advice that is not taken costs nothing but the proof that the disk has it.
    let _ = fadvise(&to.file, 0, None, Advice::DontNeed);
    let length = range.end;
    let mut progress = Progress::new("compare", length);
    let (mut expected, mut found) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut offset = range.start;
    while offset < length {
        stop.check()?;
        let expected = part_of(&mut expected, length - offset);
        let found = part_of(&mut found, length - offset);
        from.read_exact_at(expected, offset).map_err(|error| unreadable(from, &error))?;
        to.file.read_exact_at(found, offset).map_err(|error| to.failed("read", &error))?;
        // As a whole first: byte by byte takes longer than reading.
        if expected != found {
            let at = expected.iter().zip(found.iter()).take_while(|(a, b)| a == b).count();
            return Ok(Some(offset + as_u64(at)));
        }
        offset += as_u64(expected.len());
        progress.at(offset);
    }
    Ok(None)
}

fn part_of(buffer: &mut [u8], left: u64) -> &mut [u8] {
    let length = usize::try_from(left).unwrap_or(CHUNK).min(buffer.len());
    &mut buffer[..length]
}

fn as_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
