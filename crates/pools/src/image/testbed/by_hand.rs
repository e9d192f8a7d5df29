//! What root does to a pool's files by hand.

use std::path::{Path, PathBuf};

use orlop_model::{Error, Result};
use orlop_sys::loopdev::{self, AttachOptions, LoopDevice};
use orlop_sys::mounts::{self, BindAccess};

const LABEL: &str = "by hand";

/// A device that the pool knows nothing of, detached also by a panic.
pub(in crate::image) struct ByHand(LoopDevice);

impl ByHand {
    pub(in crate::image) fn attach(file: &Path, read_only: bool) -> Self {
        let size = file.metadata().unwrap().len();
        let options = AttachOptions { label: LABEL, read_only, size };
        Self(loopdev::attach(file, &options).unwrap())
    }

    pub(in crate::image) fn path(&self) -> PathBuf {
        self.0.path()
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let detached = super::until_detached(&self.0, LABEL);
        assert!(detached.is_ok() || std::thread::panicking(), "{detached:?}");
    }
}

/// Something of the pool at another path, taken down also by a panic.
pub(in crate::image) struct Bound(PathBuf);

impl Bound {
    pub(in crate::image) fn new(shown: &Path, point: &Path) -> Self {
        mounts::bind(shown, point, BindAccess::ReadWrite).unwrap();
        Self(point.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let unmounted = super::until_unmounted(&self.0);
        assert!(unmounted.is_ok() || std::thread::panicking(), "{unmounted:?}");
    }
}

/// The message of a refusal.
#[track_caller]
pub(in crate::image) fn refused<T>(outcome: Result<T>) -> String {
    match outcome {
        Err(Error::Precondition(message)) => message.to_string(),
        Err(error) => panic!("not refused: {error:?}"),
        Ok(_) => panic!("not refused"),
    }
}

#[track_caller]
pub(in crate::image) fn refused_for<T>(outcome: Result<T>, device: &ByHand) {
    let message = refused(outcome);
    let mends = format!("'losetup --detach {}'", device.path().display());
    assert!(message.contains(&mends), "{message}");
}
