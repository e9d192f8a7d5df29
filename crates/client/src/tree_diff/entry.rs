//! One file or directory, and in which respects another version of it differs.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, StatxFlags, StatxTimestamp, fgetxattr, flistxattr, openat,
    readlinkat, statx,
};
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt::Stop;

const CHUNK: usize = 1 << 20;
/// The kernel's limit for a list of attributes, and for one of them.
const LONGEST_ATTRIBUTE: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
    Device,
    Other,
}

/// What a file keeps when it is renamed. The number of a file that was deleted may be given again, with another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) kind: Kind,
    number: u64,
    /// `None`: the filesystem does not know.
    born: Option<Moment>,
}

impl Identity {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.born.is_some() && self == other
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

type Moment = (i64, u32);

pub(super) struct Entry {
    pub(super) identity: Identity,
    permissions: u16,
    user: u32,
    group: u32,
    size: u64,
    written: Moment,
    /// Of anything but the name: the kernel sets it, and programs cannot.
    changed: Moment,
    links: u32,
    device: (u32, u32),
}

pub(super) enum CompareError {
    Io(io::Error),
    Stopped(Failure),
}

impl From<io::Error> for CompareError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for CompareError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl Entry {
    pub(super) fn read(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        let moment = |time: &StatxTimestamp| (time.tv_sec, time.tv_nsec);
        let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let kind = match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
            FileType::Fifo | FileType::Socket | FileType::Unknown => Kind::Other,
        };
        Ok(Self {
            identity: Identity {
                kind,
                number: found.stx_ino,
                born: has_birth.then(|| moment(&found.stx_btime)),
            },
            permissions: found.stx_mode,
            user: found.stx_uid,
            group: found.stx_gid,
            size: found.stx_size,
            written: moment(&found.stx_mtime),
            changed: moment(&found.stx_ctime),
            links: found.stx_nlink,
            device: (found.stx_rdev_major, found.stx_rdev_minor),
        })
    }

    /// The same inode, at which nothing was changed since.
    pub(super) fn is_untouched(&self, other: &Self) -> bool {
        self.identity == other.identity
            && self.changed == other.changed
            && self.size == other.size
            && self.permissions == other.permissions
    }

    pub(super) fn compare(
        &self,
        other: &Self,
        old: BorrowedFd<'_>,
        new: BorrowedFd<'_>,
        name: &CStr,
        stop: &Stop,
    ) -> Result<Vec<&'static str>, CompareError> {
        let mut respects = Vec::new();
        let mut note = |differs: bool, respect: &'static str| {
            if differs {
                respects.push(respect);
            }
        };
        match self.identity.kind {
            Kind::File => {
                let (before, after) = (open(old, name)?, open(new, name)?);
                note(self.size != other.size, "size");
                note(
                    self.size != other.size
                        || !has_same_contents(&before, &after, self.size, stop)?,
                    "contents",
                );
                note(attributes(before.as_fd())? != attributes(after.as_fd())?, "attributes");
            }
            // What was made or removed in it is reported by itself; its size and times follow from that.
            Kind::Directory => {
                let (before, after) = (open(old, name)?, open(new, name)?);
                note(attributes(before.as_fd())? != attributes(after.as_fd())?, "attributes");
            }
            Kind::Link => note(
                readlinkat(old, name, Vec::new())? != readlinkat(new, name, Vec::new())?,
                "target",
            ),
            Kind::Device => note(self.device != other.device, "device"),
            Kind::Other => {}
        }
        note(self.permissions != other.permissions, "mode");
        note((self.user, self.group) != (other.user, other.group), "owner");
        if self.identity.kind != Kind::Directory {
            note(self.written != other.written, "mtime");
            note(self.links != other.links, "links");
        }
        Ok(respects)
    }
}

fn open(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(openat(directory, name, flags, Mode::empty())?))
}

fn has_same_contents(
    one: &File,
    other: &File,
    size: u64,
    stop: &Stop,
) -> Result<bool, CompareError> {
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut offset = 0;
    while offset < size {
        stop.check().map_err(CompareError::Stopped)?;
        let length = usize::try_from(size - offset).unwrap_or(CHUNK).min(CHUNK);
        one.read_exact_at(&mut left[..length], offset)?;
        other.read_exact_at(&mut right[..length], offset)?;
        if left[..length] != right[..length] {
            return Ok(false);
        }
        offset += u64::try_from(length).unwrap_or(u64::MAX);
    }
    Ok(true)
}

/// Such as access control lists; in the order of names. A filesystem without any has none.
fn attributes(file: BorrowedFd<'_>) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut buffer = vec![0; LONGEST_ATTRIBUTE];
    let length = match flistxattr(file, &mut buffer[..]) {
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        listed => listed?,
    };
    let names = buffer[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    names.sort_unstable();
    let mut found = Vec::new();
    for name in names {
        let length = fgetxattr(file, name.as_slice(), &mut buffer[..])?;
        found.push((name, buffer[..length].to_vec()));
    }
    Ok(found)
}
