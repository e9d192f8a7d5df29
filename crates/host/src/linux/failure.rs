//! What the kernel and the tools say, as errors named by what a caller can do about them.

use std::io;

use orlop_model::{Error, Reason};
use rustix::io::Errno;

/// For `map_err`: what the call was to do, as a verb phrase.
pub(super) fn cannot(doing: &str) -> impl FnOnce(orlop_sys::Error) -> Error {
    move |failure| {
        let text = failure.to_string();
        named(doing, failure, text, Reason::explained)
    }
}

/// As [`cannot`], where what the failure says of itself must not be shown as it is: `shown` takes its
/// place, and the failure is not kept.
pub(super) fn cannot_showing(doing: &str, failure: orlop_sys::Error, shown: String) -> Error {
    named(doing, failure, shown, |text, _| text.into())
}

/// The one place where a failure of the machine gets its name.
fn named(
    doing: &str,
    failure: orlop_sys::Error,
    text: String,
    reason: impl FnOnce(String, orlop_sys::Error) -> Reason,
) -> Error {
    if failure.is_no_space() || is_out_of_descriptors(failure.errno()) {
        return Error::Exhausted(reason(format!("cannot {doing}: {text}"), failure));
    }
    if let Some(device) = failure.busy_device() {
        return Error::busy(
            device.display(),
            "a tool that was started earlier is still running on it",
        );
    }
    if failure.is_busy() {
        let text = format!("cannot {doing}: {text}; end what still uses it");
        return Error::Precondition(reason(text, failure));
    }
    if is_callers_to_mend(&failure) {
        return Error::Precondition(reason(format!("cannot {doing}: {text}"), failure));
    }
    Error::failed(doing, reason(text, failure))
}

/// As [`cannot`], for std's own file calls, which carry no path.
pub(super) fn cannot_io(doing: &str) -> impl FnOnce(io::Error) -> Error {
    move |failure| {
        if failure.kind() == io::ErrorKind::StorageFull
            || is_out_of_descriptors(Errno::from_io_error(&failure))
        {
            let text = format!("cannot {doing}: {failure}");
            return Error::exhausted(Reason::explained(text, failure));
        }
        Error::failed(doing, Reason::of(failure))
    }
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn device_locked_by_another_program_is_busy() {
        let failure = orlop_sys::Error::DeviceBusy { device: PathBuf::from("/dev/loop7") };
        let error = cannot("format as xfs")(failure);
        assert!(matches!(error, Error::Busy { .. }), "{error:?}");
        assert!(error.to_string().contains("/dev/loop7"), "{error}");
    }
}
