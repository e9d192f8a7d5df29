//! A disk image, raw or qcow2, as import reads it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use orlop_sys::filesystem::{self, Signature, SmallestUnit};
use rustix::fs::{MemfdFlags, memfd_create};

use super::containers;
use super::copy::{NamedFile, Source};
use super::qcow2;
use crate::failure::{Failure, Result};

/// Superblocks of all filesystems that are recognized lie before it.
const HEAD: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ImageFormat {
    /// The bytes of a disk as they are
    Raw,
    /// QEMU's format, without other files that it depends on
    Qcow2,
}

pub(super) struct DiskImage {
    pub(super) source: Box<dyn Source + Send>,
    /// Of the disk, which may be more than that of the file.
    pub(super) length: u64,
    pub(super) format: ImageFormat,
    /// Begins as the disk does.
    head: File,
}

impl DiskImage {
    /// Without a format, the first bytes of the file decide.
    pub(super) fn open(path: &Path, format: Option<ImageFormat>) -> Result<Self> {
        let cannot = |why: &str| Failure::usage(format!("cannot import {}: {why}", path.display()));
        if path.is_dir() {
            return Err(cannot("it is a directory; give a disk image"));
        }
        let side =
            NamedFile::open(path, false).map_err(|failure| Failure::usage(failure.to_string()))?;
        let mut first = [0; 4];
        if side.file.read_exact_at(&mut first, 0).is_err() {
            return Err(cannot("it is empty, or cannot be read; give a disk image"));
        }
        let is_qcow2 = first == qcow2::MAGIC;
        if format.is_none()
            && let Some(refusal) = containers::refusal(&side.file, path)
        {
            return Err(cannot(&refusal));
        }
        let format = format.unwrap_or(if is_qcow2 { ImageFormat::Qcow2 } else { ImageFormat::Raw });
        let opened = match format {
            ImageFormat::Raw => Self::raw(side),
            ImageFormat::Qcow2 => {
                let file = side.file.try_clone().map_err(|error| cannot(&error.to_string()))?;
                let opened =
                    qcow2::Image::open(file).map_err(|error| cannot(&error.to_string()))?;
                let image = opened.map_err(|refusal| cannot(&refusal.to_string()))?;
                Self::qcow2(image, side.path)
            }
        };
        opened.map_err(|error| cannot(&error.to_string()))
    }

    fn raw(mut side: NamedFile) -> io::Result<Self> {
        let length = side.file.seek(SeekFrom::End(0))?;
        let head = side.file.try_clone()?;
        Ok(Self { source: Box::new(side), length, format: ImageFormat::Raw, head })
    }

    fn qcow2(image: qcow2::Image, path: PathBuf) -> io::Result<Self> {
        let length = image.length();
        let mut source = Qcow2Source { image, path };
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(HEAD).min(HEAD)];
        source.read_exact_at(&mut bytes, 0)?;
        let head = File::from(memfd_create("head of a disk image", MemfdFlags::CLOEXEC)?);
        head.set_len(length)?;
        head.write_all_at(&bytes, 0)?;
        Ok(Self { source: Box::new(source), length, format: ImageFormat::Qcow2, head })
    }

    /// The filesystem that fills it.
    pub(super) fn filesystem(&self) -> Option<&'static str> {
        let path = format!("/proc/self/fd/{}", self.head.as_raw_fd());
        match filesystem::probe(Path::new(&path)) {
            Ok(Signature::Filesystem { kind, .. }) => Some(kind.as_str()),
            Ok(_) | Err(_) => None,
        }
    }

    pub(super) fn smallest_unit(&self) -> Option<SmallestUnit> {
        SmallestUnit::of(&self.head)
    }
}

struct Qcow2Source {
    image: qcow2::Image,
    path: PathBuf,
}

impl Source for Qcow2Source {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_exact_at(&mut self, part: &mut [u8], offset: u64) -> io::Result<()> {
        self.image.read_exact_at(part, offset)
    }

    fn next_data(&mut self, offset: u64) -> io::Result<Option<u64>> {
        self.image.next_data(offset)
    }
}
