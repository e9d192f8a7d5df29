//! Making images, and opening them.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::Arc;

use super::handle::{CephCall, call, close};
use super::image::Image;
use super::library::{Handle, library};
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
    /// Of an image of the same pool; as large as it was then.
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
                    return Err(creating.refused("librbd has no rbd_clone4"));
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
            image.look_at(number)?;
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
