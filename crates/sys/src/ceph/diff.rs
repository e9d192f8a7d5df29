//! Which parts of an image hold data, and which have changed since a snapshot.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::handle::call;
use super::image::Image;
use crate::error::Result;

/// Ends an iteration early; librbd hands it through as it is.
const ENOUGH: c_int = -libc::ECANCELED;

/// A part of an image that was written, or was given back since a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub length: u64,
    pub holds_data: bool,
}

type Visitor<'a> = &'a mut (dyn FnMut(Extent) -> bool + 'a);

impl Image {
    /// Whole objects (4 MiB as a rule) of `length` bytes from `offset` on, in rising order: those
    /// that were ever written, or, given an earlier snapshot, those that were touched since. As
    /// the image was opened: now, or at a later snapshot. The visitor may end it by `false`.
    pub fn visit_written(
        &self,
        since: Option<&str>,
        (offset, length): (u64, u64),
        mut visit: impl FnMut(Extent) -> bool,
    ) -> Result<()> {
        let comparing = self.call("compare");
        let since = since.map(|name| comparing.text(name)).transpose()?;
        // Since a snapshot nothing comes from the parent: what a clone did not write itself is
        // what it was.
        let include_parent = u8::from(since.is_none());
        let from = since.as_deref().map_or(ptr::null(), |name| name.as_ptr());
        let mut visitor: Visitor<'_> = &mut visit;
        let argument = (&raw mut visitor).cast::<c_void>();
        let code = call!(rbd.rbd_diff_iterate2(
            self.handle(),
            from,
            offset,
            length,
            include_parent,
            1,
            on_extent,
            argument,
        ));
        if code != ENOUGH {
            comparing.check(code)?;
        }
        Ok(())
    }
}

extern "C" fn on_extent(offset: u64, length: usize, exists: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: it is the visitor of the call that we are in, which nobody else uses until that
    // returns; librbd calls from one thread at a time.
    let visitor = unsafe { &mut *argument.cast::<Visitor<'_>>() };
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    if visitor(Extent { offset, length, holds_data: exists != 0 }) { 0 } else { ENOUGH }
}
