//! Where a failed call becomes an error of the pool: in one function.

use std::fmt::Display;
use std::io;

use orlop_model::{Error, Result};
use rustix::io::Errno;

/// Says at what a call failed. The text is only built when it did.
pub(super) trait ImageResultExt<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ImageResultExt<T> for orlop_sys::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| match error.busy_device() {
            Some(device) => Error::Busy(device.display().to_string()),
            None => failure(what(), error.errno(), &error),
        })
    }
}

impl<T> ImageResultExt<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| failure(what(), Errno::from_io_error(&error), &error))
    }
}

fn failure(doing: String, errno: Option<Errno>, detail: &dyn Display) -> Error {
    let hint = match errno {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            return Error::Exhausted(format!(
                "{doing}: {detail}: the pool's filesystem or its quota is used up"
            ));
        }
        Some(Errno::MFILE | Errno::NFILE) => {
            return Error::Exhausted(format!(
                "{doing}: {detail}: no descriptor is left; raise the limit of this process"
            ));
        }
        Some(Errno::ROFS) => {
            return Error::Unreachable {
                doing,
                reason: format!(
                    "{detail}: the pool's filesystem is read-only; look for its errors in the \
                     kernel log"
                ),
            };
        }
        Some(errno) if is_of_the_storage(errno) => {
            return Error::Unreachable {
                doing,
                reason: format!(
                    "{detail}: the pool's storage does not answer; look for its errors in the \
                     kernel log"
                ),
            };
        }
        Some(Errno::NOENT) => {
            "it is gone; was the pool's directory moved or its filesystem unmounted?"
        }
        Some(_) | None => return Error::failed(doing, detail),
    };
    Error::failed(doing, format!("{detail}: {hint}"))
}

/// What a disk, or a server of files, answers that is broken, unplugged or out of reach.
fn is_of_the_storage(errno: Errno) -> bool {
    [
        Errno::IO,
        Errno::NXIO,
        Errno::NODEV,
        Errno::REMOTEIO,
        Errno::STALE,
        Errno::TIMEDOUT,
        Errno::HOSTDOWN,
        Errno::NOTCONN,
        Errno::SHUTDOWN,
    ]
    .contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: Errno) -> Error {
        let failed: io::Result<()> = Err(errno.into());
        failed.doing(|| "write".to_owned()).unwrap_err()
    }

    #[test]
    fn a_full_disk_is_exhaustion_and_a_broken_one_is_away() {
        assert!(matches!(of(Errno::NOSPC), Error::Exhausted(_)));
        assert!(matches!(of(Errno::DQUOT), Error::Exhausted(_)));
        assert!(matches!(of(Errno::MFILE), Error::Exhausted(_)));
        for errno in [Errno::ROFS, Errno::IO, Errno::NODEV, Errno::STALE] {
            assert!(matches!(of(errno), Error::Unreachable { .. }), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::PERM] {
            let Error::Failed { doing, reason } = of(errno) else {
                panic!("{errno} is a failure");
            };
            assert_eq!(doing, "write");
            assert!(!reason.is_empty());
        }
    }
}
