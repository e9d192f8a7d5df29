//! What the kernel and the tools say, as errors named by what a caller can do about them.

use orlop_model::{Error, Result};
use rustix::io::Errno;

pub(super) fn explained(doing: &str, failure: &orlop_sys::Error) -> Error {
    named(doing, failure, failure.to_string())
}

/// The one place where a failure of the machine gets its name. `text` stands for what the failure
/// says of itself, where that must not be shown as it is.
pub(super) fn named(doing: &str, failure: &orlop_sys::Error, text: String) -> Error {
    if failure.is_no_space() || is_out_of_descriptors(failure.errno()) {
        return Error::Exhausted(format!("{doing}: {text}"));
    }
    if let Some(device) = failure.busy_device() {
        return Error::Busy(device.display().to_string());
    }
    if failure.is_busy() {
        return Error::precondition(format!("{doing}: {text}; something still uses it"));
    }
    if is_callers_to_mend(failure) {
        return Error::precondition(format!("{doing}: {text}"));
    }
    Error::failed(doing, text)
}

fn is_out_of_descriptors(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// A path that cannot be used as it is: a link, the wrong kind of thing, a directory that cannot
/// be written or is not empty.
fn is_callers_to_mend(failure: &orlop_sys::Error) -> bool {
    let errno = failure.errno();
    matches!(
        errno,
        Some(
            Errno::LOOP
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::ROFS
                | Errno::NOTEMPTY
                | Errno::NAMETOOLONG
                | Errno::ACCESS
        )
    )
}

/// Nothing is there, nor can be: a file stands where a directory of the path should be.
pub(super) fn is_missing(failure: &orlop_sys::Error) -> bool {
    matches!(failure.errno(), Some(Errno::NOENT | Errno::NOTDIR))
}

pub(super) trait HostResultExt<T> {
    fn doing(self, what: &str) -> Result<T>;
}

impl<T> HostResultExt<T> for orlop_sys::Result<T> {
    fn doing(self, what: &str) -> Result<T> {
        self.map_err(|failure| explained(what, &failure))
    }
}

/// std's own file calls, which carry no path.
impl<T> HostResultExt<T> for std::io::Result<T> {
    fn doing(self, what: &str) -> Result<T> {
        self.map_err(|failure| {
            if failure.kind() == std::io::ErrorKind::StorageFull
                || is_out_of_descriptors(Errno::from_io_error(&failure))
            {
                return Error::Exhausted(format!("{what}: {failure}"));
            }
            Error::failed(what, failure)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_another_program_still_works_on_is_busy() {
        let failure = orlop_sys::Error::DeviceBusy { device: PathBuf::from("/dev/loop7") };
        let error = explained("format as xfs", &failure);
        assert!(matches!(error, Error::Busy(_)), "{error:?}");
        assert!(error.to_string().contains("/dev/loop7"), "{error}");
    }
}
