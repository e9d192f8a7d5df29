//! Undoing the steps of a call that failed.

use orlop_model::{Result, VolumeId};

/// The outcome as it is, after `undo` if it is an error. That `undo` fails, too, is logged and does
/// not hide the error that made it necessary. What stays is on record, and the repeated call, or the
/// one that takes the volume away, ends it.
pub(crate) fn rolled_back<T>(
    outcome: Result<T>,
    step: &str,
    volume: &VolumeId,
    undo: impl FnOnce() -> Result<()>,
) -> Result<T> {
    if outcome.is_err()
        && let Err(error) = undo()
    {
        tracing::warn!(%error, %volume, "cannot roll back a failed {step}");
    }
    outcome
}
