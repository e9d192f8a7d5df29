//! Making images, opening them, and what an open one can do.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use super::handle::{CephCall, call, close, owned, terminated};
use super::library::{Handle, RawLinkedImage, RawSnapshot, library};
use super::objects::IoCtx;
use super::snapshots::SnapshotRef;
use crate::error::Result;

const LAYERING: u64 = 1;
const EXCLUSIVE_LOCK: u64 = 1 << 2;
const OBJECT_MAP: u64 = 1 << 3;
const FAST_DIFF: u64 = 1 << 4;
const DEEP_FLATTEN: u64 = 1 << 5;
const FEATURES: u64 = LAYERING | EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | DEEP_FLATTEN;

const OPTION_FEATURES: c_int = 1;
const OPTION_CLONE_FORMAT: c_int = 12;
/// Clones of this format need no protected snapshot: a snapshot that is removed stays, out of
/// sight, as long as a clone needs it. What the default is depends on the cluster.
const CLONE_FORMAT: u64 = 2;

const ID_BUFFER: usize = 256;
const METADATA_BUFFER: usize = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadWrite,
    /// Leaves no trace: not even a watcher.
    ReadOnly,
}

/// What a new image holds.
#[derive(Debug, Clone, Copy)]
pub enum NewImage<'a> {
    Zeroes {
        size: u64,
    },
    /// A clone of a snapshot in the same pool, with the size of that snapshot.
    CloneOf {
        image: &'a str,
        snapshot: SnapshotRef<'a>,
    },
}

/// Can snapshots of groups be cloned? librbd has that since 1.20, of Ceph 19.
pub fn can_clone_by_number() -> Result<bool> {
    Ok(library()?.rbd.rbd_clone4.is_some())
}

impl IoCtx {
    /// `EEXIST` if there is an image of that name; this decides between two that make it at once.
    pub fn create_image(&self, name: &str, new: NewImage<'_>) -> Result<()> {
        let subject = self.subject(name);
        let creating = CephCall { operation: "create the image", subject: &subject };
        let text = creating.text(name)?;
        let options = Options::new()?;
        options.set(&creating, OPTION_FEATURES, FEATURES)?;
        let io = self.handle();
        let code = match new {
            NewImage::Zeroes { size } => {
                call!(rbd.rbd_create4(io, text.as_ptr(), size, options.handle))
            }
            NewImage::CloneOf { image, snapshot } => {
                options.set(&creating, OPTION_CLONE_FORMAT, CLONE_FORMAT)?;
                self.clone_image(&creating, (image, snapshot), &text, &options)?
            }
        };
        creating.check(code)?;
        Ok(())
    }

    fn clone_image(
        &self,
        creating: &CephCall<'_>,
        (image, snapshot): (&str, SnapshotRef<'_>),
        name: &CStr,
        options: &Options,
    ) -> Result<c_int> {
        let (io, options) = (self.handle(), options.handle);
        let image = creating.text(image)?;
        let (image, name) = (image.as_ptr(), name.as_ptr());
        Ok(match snapshot {
            SnapshotRef::Name(snapshot) => {
                let snapshot = creating.text(snapshot)?;
                call!(rbd.rbd_clone3(io, image, snapshot.as_ptr(), io, name, options))
            }
            SnapshotRef::Number(number) => {
                let Some(clone) = library()?.rbd.rbd_clone4 else {
                    return Err(creating.refused("librbd has no rbd_clone4; Ceph 19 has it"));
                };
                // SAFETY: as for `call`.
                unsafe { clone(io, image, number, io, name, options) }
            }
        })
    }

    pub fn open_image(self: &Arc<Self>, name: &str, access: Access) -> Result<Image> {
        let subject = self.subject(name);
        let opening = CephCall { operation: "open the image", subject: &subject };
        let text = opening.text(name)?;
        let (io, none) = (self.handle(), ptr::null());
        let mut handle = ptr::null_mut();
        let code = match access {
            Access::ReadWrite => call!(rbd.rbd_open(io, text.as_ptr(), &raw mut handle, none)),
            Access::ReadOnly => {
                call!(rbd.rbd_open_read_only(io, text.as_ptr(), &raw mut handle, none))
            }
        };
        opening.check(code)?;
        Ok(Image::new(handle, Arc::clone(self), subject))
    }

    /// Also of one in the trash; as it is now, or as it was when a snapshot was made.
    pub fn open_image_by_id(
        self: &Arc<Self>,
        id: &str,
        snapshot: Option<SnapshotRef<'_>>,
        access: Access,
    ) -> Result<Image> {
        let subject = self.subject(id);
        let opening = CephCall { operation: "open the image", subject: &subject };
        let text = opening.text(id)?;
        let (name, number) = match snapshot {
            None => (None, None),
            Some(SnapshotRef::Name(name)) => (Some(opening.text(name)?), None),
            Some(SnapshotRef::Number(number)) => (None, Some(number)),
        };
        let snapshot = name.as_deref().map_or(ptr::null(), |name| name.as_ptr());
        let io = self.handle();
        let mut handle = ptr::null_mut();
        let code = match access {
            Access::ReadWrite => {
                call!(rbd.rbd_open_by_id(io, text.as_ptr(), &raw mut handle, snapshot))
            }
            Access::ReadOnly => {
                call!(rbd.rbd_open_by_id_read_only(io, text.as_ptr(), &raw mut handle, snapshot))
            }
        };
        opening.check(code)?;
        let image = Image::new(handle, Arc::clone(self), subject);
        if let Some(number) = number {
            image.set_snapshot(number)?;
        }
        Ok(image)
    }
}

/// How an image is to be made.
struct Options {
    handle: Handle,
}

impl Options {
    fn new() -> Result<Self> {
        let mut handle = ptr::null_mut();
        call!(rbd.rbd_image_options_create(&raw mut handle));
        Ok(Self { handle })
    }

    fn set(&self, creating: &CephCall<'_>, option: c_int, value: u64) -> Result<()> {
        let code = call!(rbd.rbd_image_options_set_uint64(self.handle, option, value));
        creating.check(code)?;
        Ok(())
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        close!(rbd.rbd_image_options_destroy(self.handle));
    }
}

/// An open image.
#[derive(Debug)]
pub struct Image {
    handle: Handle,
    /// Kept open as long as the image is.
    _io: Arc<IoCtx>,
    subject: String,
}

// SAFETY: librbd locks inside; an image may be used by many threads at once.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

/// The image that a clone was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    pub image_id: String,
    /// Has another name in the trash, where it goes when it is removed while clones need it.
    pub snapshot: String,
    pub number: u64,
}

impl Image {
    fn new(handle: Handle, io: Arc<IoCtx>, subject: String) -> Self {
        Self { handle, _io: io, subject }
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    pub(super) fn call(&self, operation: &'static str) -> CephCall<'_> {
        CephCall { operation, subject: &self.subject }
    }

    pub fn id(&self) -> Result<String> {
        let mut buffer = [0_u8; ID_BUFFER];
        let start = buffer.as_mut_ptr().cast::<c_char>();
        let code = call!(rbd.rbd_get_id(self.handle, start, buffer.len()));
        self.call("read the id of").check(code)?;
        Ok(terminated(&buffer))
    }

    pub fn size(&self) -> Result<u64> {
        let mut size = 0;
        let code = call!(rbd.rbd_get_size(self.handle, &raw mut size));
        self.call("read the size of").check(code)?;
        Ok(size)
    }

    /// By the clock of the object store.
    pub fn created(&self) -> Result<SystemTime> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let code = call!(rbd.rbd_get_create_timestamp(self.handle, &raw mut time));
        self.call("read the creation time of").check(code)?;
        Ok(UNIX_EPOCH + Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)))
    }

    /// Does not shrink; but two of these at once may: librbd compares with the size that it knew
    /// when it was asked, not with the one when it is done. Every client that has the image open is notified, and
    /// does it if it holds the lock.
    pub fn ensure_size(&self, size: u64) -> Result<()> {
        let nothing = ptr::null_mut();
        let code = call!(rbd.rbd_resize2(self.handle, size, false, on_progress, nothing));
        match self.call("grow").check(code) {
            Err(error) if error.errno() == Some(Errno::INVAL) && self.size()? >= size => Ok(()),
            done => done.map(drop),
        }
    }

    pub fn parent(&self) -> Result<Option<Parent>> {
        let mut image = RawLinkedImage {
            pool_id: 0,
            pool_name: ptr::null_mut(),
            pool_namespace: ptr::null_mut(),
            image_id: ptr::null_mut(),
            image_name: ptr::null_mut(),
            trash: false,
        };
        let mut snapshot = RawSnapshot { id: 0, namespace_type: 0, name: ptr::null_mut() };
        let code = call!(rbd.rbd_get_parent(self.handle, &raw mut image, &raw mut snapshot));
        match self.call("read the parent of").check(code) {
            Err(error) if error.is_not_found() => return Ok(None),
            answer => answer?,
        };
        let parent = Parent {
            image_id: owned(image.image_id),
            snapshot: owned(snapshot.name),
            number: snapshot.id,
        };
        call!(rbd.rbd_linked_image_spec_cleanup(&raw mut image));
        call!(rbd.rbd_snap_spec_cleanup(&raw mut snapshot));
        Ok(Some(parent))
    }

    /// Copies what it still shares with its parent; `Ok` if it has none. In use all the while.
    pub fn flatten(&self) -> Result<()> {
        match self.call("flatten").check(call!(rbd.rbd_flatten(self.handle))) {
            Err(error) if error.errno() == Some(Errno::INVAL) && self.parent()?.is_none() => Ok(()),
            done => done.map(drop),
        }
    }

    /// Gives back runs of zeroes of at least so many bytes, a power of two.
    pub fn sparsify(&self, run: usize) -> Result<()> {
        self.call("sparsify").check(call!(rbd.rbd_sparsify(self.handle, run)))?;
        Ok(())
    }

    /// Fewer bytes than asked for are the end of the image.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let start = buffer.as_mut_ptr().cast::<c_char>();
        let code = call!(rbd.rbd_read(self.handle, offset, buffer.len(), start));
        self.call("read").check_long(code)
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let start = bytes.as_ptr().cast::<c_char>();
        let code = call!(rbd.rbd_write(self.handle, offset, bytes.len(), start));
        let written = self.call("write").check_long(code)?;
        if written < bytes.len() {
            return Err(self.call("write").errno(Errno::IO));
        }
        Ok(())
    }

    pub fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let code = call!(rbd.rbd_discard(self.handle, offset, length));
        self.call("discard").check(code)?;
        Ok(())
    }

    pub fn flush(&self) -> Result<()> {
        self.call("flush").check(call!(rbd.rbd_flush(self.handle)))?;
        Ok(())
    }

    pub fn metadata(&self, key: &str) -> Result<Option<String>> {
        let reading = self.call("read the metadata of");
        let key = reading.text(key)?;
        let mut buffer = vec![0_u8; METADATA_BUFFER];
        loop {
            let mut length = buffer.len();
            let start = buffer.as_mut_ptr().cast::<c_char>();
            let code =
                call!(rbd.rbd_metadata_get(self.handle, key.as_ptr(), start, &raw mut length));
            match reading.check(code) {
                Ok(_) => return Ok(Some(terminated(&buffer))),
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) if error.errno() == Some(Errno::RANGE) && length > buffer.len() => {
                    buffer.resize(length, 0);
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub fn set_metadata(&self, key: &str, value: &str) -> Result<()> {
        let writing = self.call("write the metadata of");
        let (key, value) = (writing.text(key)?, writing.text(value)?);
        let code = call!(rbd.rbd_metadata_set(self.handle, key.as_ptr(), value.as_ptr()));
        writing.check(code)?;
        Ok(())
    }
}

extern "C" fn on_progress(_done: u64, _all: u64, _argument: *mut c_void) -> c_int {
    0
}

impl Drop for Image {
    fn drop(&mut self) {
        close!(rbd.rbd_close(self.handle));
    }
}
