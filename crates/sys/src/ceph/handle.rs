//! What all calls into the libraries share: texts in, codes and texts out.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;

use rustix::io::Errno;

use crate::error::{Error, Result};

/// Calls a function of the libraries.
///
/// What every use keeps to: handles are live, as their owner is borrowed; texts are terminated and,
/// like buffers and out parameters, outlive the call; lengths are those of the buffers; and no
/// function here keeps what it was given, except where a comment at the call says so. The libraries
/// are made for calls from many threads at once.
macro_rules! call {
    ($table:ident.$function:ident($($argument:expr),* $(,)?)) => {{
        let function = $crate::ceph::library::library()?.$table.$function;
        // SAFETY: as said above.
        unsafe { function($($argument),*) }
    }};
}
pub(super) use call;

/// For `Drop`: the library is loaded, or there would be nothing to close.
macro_rules! close {
    ($table:ident.$function:ident($($argument:expr),* $(,)?)) => {
        if let Ok(library) = $crate::ceph::library::library() {
            // SAFETY: as for `call`; and the handle is not used again, as its owner is dropped.
            unsafe { (library.$table.$function)($($argument),*) };
        }
    };
}
pub(super) use close;

const LARGEST_ERRNO: c_int = 4095;

/// Which operation failed, and on what: `POOL/IMAGE`, say.
#[derive(Debug, Clone, Copy)]
pub(super) struct CephCall<'a> {
    pub(super) operation: &'static str,
    pub(super) subject: &'a str,
}

impl CephCall<'_> {
    /// Codes are negative error numbers; what is not negative is a count or nothing.
    pub(super) fn check(&self, code: c_int) -> Result<usize> {
        usize::try_from(code).map_err(|_| self.failed(code))
    }

    pub(super) fn check_long(&self, code: isize) -> Result<usize> {
        let small = || c_int::try_from(code).unwrap_or(-libc::EIO);
        usize::try_from(code).map_err(|_| self.failed(small()))
    }

    pub(super) fn failed(&self, code: c_int) -> Error {
        self.errno(match code.saturating_neg() {
            number if number < LARGEST_ERRNO => Errno::from_raw_os_error(number),
            // A comparison of contents that fails says where they differ, counted from here on; one
            // of keys says just this.
            _ => Errno::CANCELED,
        })
    }

    pub(super) fn errno(&self, errno: Errno) -> Error {
        Error::Call { operation: self.operation, path: Path::new(self.subject).into(), errno }
    }

    pub(super) fn refused(&self, reason: impl Into<String>) -> Error {
        Error::refused(self.operation, Path::new(self.subject), reason)
    }

    pub(super) fn text(&self, text: &str) -> Result<CString> {
        CString::new(text).map_err(|_| self.errno(Errno::INVAL))
    }
}

/// Copies a text that the library returned; null is empty.
pub(super) fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: all texts that the libraries hand out are terminated, and this one was not freed
    // yet: callers copy it before they give it back.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The text in a buffer, up to the terminator that the library wrote.
pub(super) fn terminated(buffer: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(buffer).map(CStr::to_bytes).unwrap_or(buffer);
    String::from_utf8_lossy(text).into_owned()
}

/// Copies memory that the library owns.
pub(super) fn copied(start: *const c_char, length: usize) -> Vec<u8> {
    if start.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: the library says that so many bytes are there; they are copied at once.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec()
}
