//! Where a failed call becomes an error of the pool: in one function.

use orlop_model::{Error, Reason};
use orlop_sys::CallError;
use rustix::io::Errno;

/// For `map_err`: what the call was to do, as a verb phrase. The text is only built when it failed.
pub(super) fn cannot<E: CallError>(doing: impl FnOnce() -> String) -> impl FnOnce(E) -> Error {
    |error| failure(doing(), error)
}

fn failure(doing: String, error: impl CallError) -> Error {
    if let Some(device) = error.busy_device() {
        return crate::in_use::device_busy(device);
    }
    if let Some(file) = error.leased_file() {
        return Error::busy(file.display(), "another program holds a lease on it");
    }
    match error.errno() {
        Some(Errno::NOSPC | Errno::DQUOT) => Error::exhausted(Reason::explained(
            format!(
                "cannot {doing}: {error}; the pool's filesystem or its quota is used up: delete \
                 volumes or snapshots, or enlarge it"
            ),
            error,
        )),
        Some(Errno::MFILE | Errno::NFILE) => Error::exhausted(Reason::explained(
            format!("cannot {doing}: {error}; raise the limit of open files of this process"),
            error,
        )),
        Some(Errno::FBIG) => Error::exhausted(Reason::explained(
            format!(
                "cannot {doing}: {error}; raise the limit of file sizes of this process, or use a pool whose \
                 filesystem takes such files"
            ),
            error,
        )),
        Some(Errno::ROFS) => Error::unreachable(
            doing,
            with_advice(
                error,
                "the pool's filesystem is read-only: look for its errors in the kernel log",
            ),
        ),
        Some(errno) if is_of_the_storage(errno) => Error::unreachable(
            doing,
            with_advice(
                error,
                "the pool's storage does not answer: look for its errors in the kernel log",
            ),
        ),
        Some(Errno::NOENT) => Error::failed(
            doing,
            with_advice(
                error,
                "check whether the pool's directory was moved or its filesystem unmounted",
            ),
        ),
        Some(_) | None => Error::failed(doing, Reason::of(error)),
    }
}

fn with_advice(error: impl CallError, advice: &str) -> Reason {
    Reason::explained(format!("{error}; {advice}"), error)
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
        failure("write".to_owned(), std::io::Error::from(errno))
    }

    #[test]
    fn full_disk_is_exhausted_and_broken_disk_unreachable() {
        assert!(matches!(of(Errno::NOSPC), Error::Exhausted(_)));
        assert!(matches!(of(Errno::DQUOT), Error::Exhausted(_)));
        assert!(matches!(of(Errno::MFILE), Error::Exhausted(_)));
        assert!(matches!(of(Errno::FBIG), Error::Exhausted(_)));
        for errno in [Errno::ROFS, Errno::IO, Errno::NODEV, Errno::STALE] {
            assert!(matches!(of(errno), Error::Unreachable { .. }), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::PERM] {
            let Error::Failed { doing, reason } = of(errno) else {
                panic!("{errno} is a failure");
            };
            assert_eq!(doing, "write");
            assert!(!reason.as_str().is_empty());
        }
    }
}
