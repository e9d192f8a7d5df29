//! The device that holds a thin pool's metadata.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::block::{BLOCK_BYTES, Block, Blocks, MetadataError, Read};

const SIZE_OF_BLOCK: u64 = 4096;

/// The kernel's thin pool writes to the disk below, past the cache that the device has for other readers: what that
/// cache holds of a block may be older than the reserved snapshot. So it is read past the cache, too.
#[derive(Debug)]
pub(super) struct MetadataDevice {
    file: File,
    path: PathBuf,
    blocks: u64,
    /// A block within it begins where the device may write to.
    room: Vec<u8>,
}

impl MetadataDevice {
    pub(super) fn open(path: &Path) -> Read<Self> {
        let unread = |operation, error| unread(operation, path, &error);
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
        let file = OpenOptions::new().read(true).custom_flags(direct).open(path);
        let file = file.map_err(|error| unread("open", error))?;
        let end = seek(&file, SeekFrom::End(0)).map_err(|errno| unread("measure", errno.into()))?;
        let room = vec![0; 2 * BLOCK_BYTES];
        Ok(Self { file, path: path.to_owned(), blocks: end / SIZE_OF_BLOCK, room })
    }
}

fn unread(operation: &'static str, path: &Path, error: &io::Error) -> MetadataError {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    MetadataError::Unread(orlop_sys::Error::Call { operation, path: path.to_owned(), errno })
}

impl Blocks for MetadataDevice {
    fn read(&mut self, block: u64) -> Read<&Block> {
        if block >= self.blocks {
            return Err(MetadataError::damaged(block, "is beyond its end"));
        }
        let start = self.room.as_ptr().align_offset(BLOCK_BYTES);
        let room = self.room.get_mut(start..).and_then(|rest| rest.first_chunk_mut());
        let Some(room) = room else {
            return Err(unread("read", &self.path, &Errno::NOMEM.into()));
        };
        match self.file.read_exact_at(room, block * SIZE_OF_BLOCK) {
            Ok(()) => Ok(room),
            Err(error) => Err(unread("read", &self.path, &error)),
        }
    }
}
