//! Where what the cluster answers becomes an error of the pool: in one function.

use orlop_model::{Error, Reason};
use orlop_sys::CallError;
use rustix::io::Errno;

/// Why an object is busy whose record is not what was read before.
pub(super) const CHANGED: &str = "another process changed it during this call";

/// Why an object is busy that is there although it was not at the beginning of the call.
pub(super) const BEING_MADE: &str = "another process is making it, or has just made it";

/// For `map_err`: what the call was to do, as a verb phrase. The text is only built when it failed.
pub(super) fn cannot<E: CallError>(doing: impl FnOnce() -> String) -> impl FnOnce(E) -> Error {
    |error| failure(doing(), error)
}

fn failure(doing: String, error: impl CallError) -> Error {
    if let Some(device) = error.busy_device() {
        return crate::in_use::device_busy(device);
    }
    if error.is_held_by_operator() {
        return Error::precondition(Reason::explained(format!("cannot {doing}: {error}"), error));
    }
    let advice = match error.errno() {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            let text = format!(
                "cannot {doing}: {error}; the Ceph pool or its quota is used up: delete volumes or \
                 snapshots, raise the quota or give the cluster more space"
            );
            return Error::exhausted(Reason::explained(text, error));
        }
        Some(Errno::TIMEDOUT | Errno::SHUTDOWN | Errno::NOTCONN | Errno::CONNREFUSED) => {
            let text = format!("{error}; the Ceph cluster does not answer: check that it is up");
            return Error::unreachable(doing, Reason::explained(text, error));
        }
        Some(Errno::BUSY | Errno::CANCELED) => {
            return Error::busy("the Ceph image", format!("cannot {doing}: {error}"));
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            "the Ceph user may not do this: give it the capabilities that docs/ceph.md lists"
        }
        Some(Errno::ROFS) => "another client holds the image's lock and does not release it",
        Some(Errno::NOENT) => "it was removed, or was never there",
        Some(_) | None => return Error::failed(doing, Reason::of(error)),
    };
    Error::failed(doing, Reason::explained(format!("{error}; {advice}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: Errno) -> Error {
        failure("open".to_owned(), std::io::Error::from(errno))
    }

    #[test]
    fn transient_errors_differ_from_permanent_ones() {
        assert!(matches!(of(Errno::NOSPC), Error::Exhausted(_)));
        assert!(matches!(of(Errno::DQUOT), Error::Exhausted(_)));
        assert!(matches!(of(Errno::TIMEDOUT), Error::Unreachable { .. }));
        assert!(matches!(of(Errno::SHUTDOWN), Error::Unreachable { .. }));
        assert!(matches!(of(Errno::BUSY), Error::Busy { .. }));
        for errno in [Errno::PERM, Errno::NOENT, Errno::ROFS, Errno::IO] {
            assert!(matches!(of(errno), Error::Failed { .. }), "{errno}");
        }
    }
}
