//! `key=value` on the command line.

use std::collections::BTreeMap;

use orlop_model::ALLOCATION_UNIT;

use crate::failure::{Failure, Result};

pub(crate) fn parse(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("it is not of the form key=value".to_owned()),
    }
}

/// An error if a key is given twice.
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
    let parsed = orlop_model::parse_exact_size(text)
        .filter(|bytes| *bytes > 0 && i64::try_from(*bytes).is_ok());
    parsed.ok_or_else(|| match decimal(text) {
        Some((digits, unit, bytes)) => format!("write {digits}{unit}iB (or {bytes}, in bytes)"),
        None => "it is not a size such as 10GiB, 1.5GiB, 500Mi or 4096".to_owned(),
    })
}

/// The size of a new volume. No volume is that small, so a number without a unit is a size whose unit was forgotten.
pub(crate) fn volume_size(text: &str) -> std::result::Result<u64, String> {
    let bytes = size(text)?;
    match bytes < ALLOCATION_UNIT && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Err(format!(
            "it has no unit, and {text} bytes are less than any volume has; write {text}GiB"
        )),
        false => Ok(bytes),
    }
}

/// As disks are sold: a whole number of kB, MB, GB or TB.
fn decimal(text: &str) -> Option<(&str, &str, u64)> {
    let (digits, unit) =
        text.split_at(text.len().checked_sub(2)?.min(text.find(|c: char| !c.is_ascii_digit())?));
    let factor = match unit {
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    Some((digits, if unit == "kB" { "K" } else { unit.get(..1)? }, bytes))
}

/// Bytes per second. A number without a unit is refused: it would mean bytes, and a volume with a limit of 10 bytes per
/// second hangs.
pub(crate) fn rate(text: &str) -> std::result::Result<u64, String> {
    if let Some(bytes) = text.strip_suffix('B').and_then(|digits| digits.parse().ok()) {
        return if bytes > 0 {
            Ok(bytes)
        } else {
            Err("it is zero; write none to lift a limit".to_owned())
        };
    }
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Err(format!("it has no unit; write {text}MiB, or {text}B for bytes")),
        false => size(text).map_err(|_| "it is not a size such as 50MiB or 1.5GiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_not_meant_is_explained() {
        assert_eq!(size("200GiB"), Ok(200 << 30));
        assert_eq!(size("200GB").unwrap_err(), "write 200GiB (or 200000000000, in bytes)");
        assert_eq!(size("5kB").unwrap_err(), "write 5KiB (or 5000, in bytes)");
        for wrong in ["GB", "B", "", "1.5GB", "10GB GB", "äGB", "99999999999999TB"] {
            assert!(size(wrong).unwrap_err().starts_with("it is not a size"), "{wrong}");
        }
        assert_eq!(volume_size("1048576"), Ok(1 << 20));
        assert_eq!(volume_size("200KiB"), Ok(200 << 10));
        let why = volume_size("200").unwrap_err();
        assert!(why.contains("no unit") && why.contains("200GiB"), "{why}");
    }

    #[test]
    fn a_rate_has_a_unit() {
        assert_eq!(rate("10MiB"), Ok(10 << 20));
        assert_eq!(rate("1.5MiB"), Ok(3 << 19));
        assert_eq!(rate("4096B"), Ok(4096));
        assert_eq!(rate("10").unwrap_err(), "it has no unit; write 10MiB, or 10B for bytes");
        for wrong in ["", "0B", "B", "fast", "10MB", "-1MiB", "0MiB"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
