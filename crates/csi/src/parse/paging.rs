//! The size of a page, and where it starts. A page token is the id of the last entry of the page before.

use std::str::FromStr;

use orlop_model::{Error, Result};

/// Ranges in one message if the caller gives no limit (SM-14).
const DEFAULT_RESULTS: usize = 1024;

/// Some 100 KiB on the wire, far below the message size that receivers refuse.
const MOST_RESULTS: usize = 4096;

/// 0 means all.
pub(crate) fn max_entries(count: i32) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::invalid("max_entries", "is negative"))
}

/// A token that does not parse as an id was not issued here (LV-09, LS-12).
pub(crate) fn page_token<Id: FromStr>(text: &str) -> Result<Option<Id>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| Error::StaleToken)
}

/// SM-13 to SM-15.
pub(crate) fn max_results(count: i32) -> Result<usize> {
    match usize::try_from(count) {
        Ok(0) => Ok(DEFAULT_RESULTS),
        Ok(count) => Ok(count.min(MOST_RESULTS)),
        Err(_) => Err(Error::invalid("max_results", "is negative")),
    }
}

/// SM-27, SM-32. The engine, which knows the size of the volume, refuses an offset beyond its end.
pub(crate) fn starting_offset(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Error::OutOfRange("starting_offset is negative".to_owned()))
}
