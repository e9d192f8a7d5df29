//! Where in a volume to begin, and how much to tell at once.

use orlop_model::{Error, Result};

/// Ranges in one message where the caller leaves it open (SM-14).
const USUAL_RESULTS: usize = 1024;

/// Some 100 KiB on the wire, far from where receivers refuse a message.
const MOST_RESULTS: usize = 4096;

/// SM-13 to SM-15.
pub(crate) fn max_results(count: i32) -> Result<usize> {
    match usize::try_from(count) {
        Ok(0) => Ok(USUAL_RESULTS),
        Ok(count) => Ok(count.min(MOST_RESULTS)),
        Err(_) => Err(Error::invalid("max_results", "is negative")),
    }
}

/// SM-27, SM-32. Whether it lies beyond the end is for the volume to say.
pub(crate) fn starting_offset(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Error::OutOfRange("starting_offset is negative".to_owned()))
}
