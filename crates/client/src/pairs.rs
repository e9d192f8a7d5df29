//! `key=value` on the command line.

use std::collections::BTreeMap;

use crate::failure::{Failure, Result};

pub(crate) fn parse(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("it is not of the form key=value".to_owned()),
    }
}

/// One key twice is a slip of the hand.
pub(crate) fn collected(
    option: &str,
    pairs: &[(String, String)],
) -> Result<BTreeMap<String, String>> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if map.insert(key.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("{option} gives {key:?} twice")));
        }
    }
    Ok(map)
}

/// `a=1, b=2`
pub(crate) fn joined(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

/// A size on the command line, such as 10GiB.
pub(crate) fn size(text: &str) -> std::result::Result<u64, String> {
    let parsed =
        orlop_model::parse_size(text).filter(|bytes| *bytes > 0 && i64::try_from(*bytes).is_ok());
    parsed.ok_or_else(|| "it is not a size such as 10GiB, 500Mi or 4096".to_owned())
}
