//! How far the capture of a group snapshot has got.

use orlop_model::{Error, Result};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CaptureProgress {
    #[default]
    Begun,
    /// After a failure some members may be captured, or it is not known which. Another attempt would capture the
    /// rest at another instant.
    Capturing,
    Captured,
}

impl CaptureProgress {
    /// False: all members are captured already. An error if an earlier attempt failed.
    pub(crate) fn try_begin(&mut self) -> Result<bool> {
        match self {
            Self::Begun => {
                *self = Self::Capturing;
                Ok(true)
            }
            Self::Capturing => Err(Error::failed(
                "take a group snapshot",
                "an earlier attempt of this call failed",
            )),
            Self::Captured => Ok(false),
        }
    }

    pub(crate) fn end(&mut self) {
        *self = Self::Captured;
    }
}
