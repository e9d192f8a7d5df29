//! Where what the cluster answers becomes an error of the pool: in one function.

use std::fmt::Display;

use orlop_model::{Error, Result};
use rustix::io::Errno;

/// Says at what a call failed. The text is only built when it did.
pub(super) trait RbdResultExt<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> RbdResultExt<T> for orlop_sys::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| match error.busy_device() {
            Some(device) => Error::Busy(device.display().to_string()),
            None => failure(what(), error.errno(), &error),
        })
    }
}

fn failure(doing: String, errno: Option<Errno>, detail: &dyn Display) -> Error {
    let hint = match errno {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            return Error::Exhausted(format!(
                "{doing}: {detail}: the Ceph pool or its quota is used up"
            ));
        }
        Some(Errno::TIMEDOUT | Errno::SHUTDOWN | Errno::NOTCONN | Errno::CONNREFUSED) => {
            let reason = format!("{detail}: the Ceph cluster does not answer; is it up?");
            return Error::Unreachable { doing, reason };
        }
        Some(Errno::BUSY | Errno::CANCELED) => {
            return Error::Busy(format!("the Ceph image (cannot {doing}: {detail})"));
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            "the Ceph user may not do this; docs/ceph.md has the capabilities that it needs"
        }
        Some(Errno::ROFS) => "another client holds the image's lock and does not let go of it",
        Some(Errno::NOENT) => "it is gone, or was never there",
        Some(_) | None => return Error::failed(doing, detail),
    };
    Error::failed(doing, format!("{detail}: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: Errno) -> Error {
        failure("open".to_owned(), Some(errno), &errno)
    }

    #[test]
    fn errors_that_may_pass_differ_from_those_that_do_not() {
        assert!(matches!(of(Errno::NOSPC), Error::Exhausted(_)));
        assert!(matches!(of(Errno::DQUOT), Error::Exhausted(_)));
        assert!(matches!(of(Errno::TIMEDOUT), Error::Unreachable { .. }));
        assert!(matches!(of(Errno::SHUTDOWN), Error::Unreachable { .. }));
        assert!(matches!(of(Errno::BUSY), Error::Busy(_)));
        for errno in [Errno::PERM, Errno::NOENT, Errno::ROFS, Errno::IO] {
            assert!(matches!(of(errno), Error::Failed { .. }), "{errno}");
        }
    }
}
