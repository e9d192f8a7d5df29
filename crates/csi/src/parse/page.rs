//! Paging through lists. A page's token is the id of the last entry of the page before.

use std::str::FromStr;

use orlop_model::{Error, Result};

/// 0 means all.
pub(crate) fn max_entries(count: i32) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::invalid("max_entries", "is negative"))
}

/// A token of any shape that is not an id was not issued here (LV-09, LS-12).
pub(crate) fn page_token<Id: FromStr>(text: &str) -> Result<Option<Id>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| Error::StaleToken)
}
