//! Which parts of an image hold data, and which have changed since a snapshot.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::handle::{CephCall, call};
use super::image::Image;
use super::library::library;
use super::snapshots::SnapshotRef;
use crate::error::Result;

/// Ends an iteration early; librbd hands it through as it is.
const STOPPED: c_int = -libc::ECANCELED;
/// A flag of `rbd_diff_iterate3`.
const WHOLE_OBJECTS: u32 = 1 << 1;

/// A part of an image that was written, or was given back since a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffExtent {
    pub offset: u64,
    pub length: u64,
    pub holds_data: bool,
}

/// Which parts of an image are meant.
#[derive(Debug, Clone, Copy)]
pub enum Written<'a> {
    /// At any time, by whomever: also to what it was cloned from.
    Ever,
    /// What takes space that no parent shares.
    Here,
    /// After an earlier snapshot of the same image was made, or given back since then.
    Since(SnapshotRef<'a>),
}

/// Can something be compared with a snapshot of a group? librbd has that since Ceph 20.
pub fn can_compare_by_number() -> Result<bool> {
    Ok(library()?.rbd.rbd_diff_iterate3.is_some())
}

type Visitor<'a> = &'a mut (dyn FnMut(DiffExtent) -> bool + 'a);

impl Image {
    /// Whole objects, of 4 MiB as a rule, among `length` bytes from `offset` on, in rising order.
    /// Visits the written ranges of the image as it was opened: now, or at a snapshot. The visitor ends it with `false`.
    pub fn visit_written(
        &self,
        written: Written<'_>,
        (offset, length): (u64, u64),
        mut visit: impl FnMut(DiffExtent) -> bool,
    ) -> Result<()> {
        let comparing = self.call("compare");
        let mut visitor: Visitor<'_> = &mut visit;
        let argument = (&raw mut visitor).cast::<c_void>();
        let (since, include_parent) = match written {
            Written::Ever => (None, 1),
            Written::Here => (None, 0),
            // What a clone did not write itself is what it was.
            Written::Since(SnapshotRef::Name(snapshot)) => (Some(comparing.text(snapshot)?), 0),
            Written::Since(SnapshotRef::Number(number)) => {
                let code = self.compare_with_number(number, (offset, length), argument)?;
                return ended(&comparing, code);
            }
        };
        let from = since.as_deref().map_or(ptr::null(), |name| name.as_ptr());
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
        ended(&comparing, code)
    }

    fn compare_with_number(
        &self,
        number: u64,
        (offset, length): (u64, u64),
        argument: *mut c_void,
    ) -> Result<c_int> {
        let Some(iterate) = library()?.rbd.rbd_diff_iterate3 else {
            let reason = "librbd has no rbd_diff_iterate3; Ceph 20 has it";
            return Err(self.call("compare").refused(reason));
        };
        // SAFETY: as for `call`; the argument is the visitor of the caller, which waits for this.
        Ok(unsafe {
            iterate(self.handle(), number, offset, length, WHOLE_OBJECTS, on_extent, argument)
        })
    }
}

fn ended(comparing: &CephCall<'_>, code: c_int) -> Result<()> {
    if code != STOPPED {
        comparing.check(code)?;
    }
    Ok(())
}

extern "C" fn on_extent(offset: u64, length: usize, exists: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: it is the visitor of the call that we are in, which no other code uses until that
    // returns; librbd calls from one thread at a time.
    let visitor = unsafe { &mut *argument.cast::<Visitor<'_>>() };
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    if visitor(DiffExtent { offset, length, holds_data: exists != 0 }) { 0 } else { STOPPED }
}
