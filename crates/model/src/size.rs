//! Sizes: the ranges that callers ask for, and sizes as people read and write them.

use std::fmt;

use crate::error::{Error, Result};

/// Volumes are whole mebibytes: a multiple of every sector, block and stripe in use.
pub const ALLOCATION_UNIT: u64 = 1 << 20;

/// Larger than any filesystem here can hold in one file; keeps sums far from overflow.
const LARGEST: u64 = 1 << 60;

/// What the caller asked for: at least `required`, at most `limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityRange {
    required: u64,
    limit: Option<u64>,
}

impl fmt::Display for CapacityRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(limit) if limit == self.required => write!(f, "{limit} bytes"),
            Some(limit) => write!(f, "{} to {limit} bytes", self.required),
            None => write!(f, "at least {} bytes", self.required),
        }
    }
}

impl CapacityRange {
    /// From the wire, where 0 means "not given" (CR-01 to CR-03, CR-07).
    pub fn parse(required_bytes: i64, limit_bytes: i64) -> Result<Self> {
        const FIELD: &str = "capacity_range";
        let negative = |_| Error::invalid(FIELD, "holds a negative size");
        let required = u64::try_from(required_bytes).map_err(negative)?;
        let limit = u64::try_from(limit_bytes).map_err(negative)?;
        let limit = (limit != 0).then_some(limit);
        if required == 0 && limit.is_none() {
            return Err(Error::invalid(FIELD, "gives neither required_bytes nor limit_bytes"));
        }
        if limit.is_some_and(|limit| limit < required) {
            return Err(Error::invalid(FIELD, "limit_bytes is below required_bytes"));
        }
        Ok(Self { required, limit })
    }

    pub fn required(&self) -> u64 {
        self.required
    }

    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Does a volume of this size answer the request?
    pub fn holds(&self, bytes: u64) -> bool {
        bytes >= self.required && self.limit.is_none_or(|limit| bytes <= limit)
    }

    /// The smallest whole size that is at least `floor` and what was required. With only a
    /// limit given, `preferred` is taken as far as the limit allows.
    pub fn choose(range: Option<&Self>, floor: u64, preferred: u64) -> Result<u64> {
        let Some(range) = range else {
            return round_up(preferred.max(floor));
        };
        let wanted = match (range.required, range.limit) {
            (0, Some(limit)) => preferred.min(limit / ALLOCATION_UNIT * ALLOCATION_UNIT),
            (required, _) => required,
        };
        let chosen = round_up(wanted.max(floor))?;
        match range.limit {
            Some(limit) if chosen > limit => Err(Error::OutOfRange(format!(
                "the smallest volume that fits is {chosen} bytes, which is above limit_bytes \
                 {limit}; sizes are whole mebibytes"
            ))),
            Some(_) | None => Ok(chosen),
        }
    }
}

fn round_up(bytes: u64) -> Result<u64> {
    if bytes > LARGEST {
        return Err(Error::OutOfRange(format!("{bytes} bytes is more than any pool can hold")));
    }
    Ok(bytes.div_ceil(ALLOCATION_UNIT) * ALLOCATION_UNIT)
}

/// A size as people read it, to one decimal.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let Self(bytes) = self;
        match UNITS.iter().find(|(shift, _)| bytes >> shift > 0) {
            Some((shift, unit)) => {
                let tenths = (u128::from(*bytes) * 10) >> shift;
                write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
            }
            None => write!(f, "{bytes} bytes"),
        }
    }
}

const SETTING_UNITS: [(&str, u64); 13] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("", 1),
];

const QUANTITY_UNITS: [(&str, u64); 13] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("", 1),
];

/// A size in a setting: a whole number with a unit, as in `10GiB`, `10 Gi` or `500M`; without one, bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    let (digits, unit) = split_unit(text);
    multiplied(digits, unit.trim(), &SETTING_UNITS)
}

/// As [`parse_size`], for what people type: also `1.5GiB`, if it comes to whole bytes.
pub fn parse_exact_size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text);
    let Some((whole, fraction)) = number.split_once('.') else { return parse_size(text) };
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| (1..=18).contains(digits))?;
    let factor = multiplied("1", unit.trim(), &SETTING_UNITS)?;
    let scale = 10_u128.pow(digits);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let number = u128::from(whole.parse::<u64>().ok()?).checked_mul(scale)?;
    let number = number + u128::from(fraction.parse::<u64>().ok()?);
    let bytes = number.checked_mul(factor.into())?;
    if bytes % scale != 0 {
        return None;
    }
    u64::try_from(bytes / scale).ok()
}

/// A size in a pod's manifest: a whole number with a suffix of a Kubernetes quantity; without one,
/// bytes. `None` for anything else, for zero, and for what no wire field could hold.
pub fn parse_quantity(text: &str) -> Option<i64> {
    let (digits, unit) = split_unit(text);
    let bytes = multiplied(digits, unit, &QUANTITY_UNITS)?;
    i64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.trim_end_matches(|c: char| !c.is_ascii_digit()).len())
}

fn multiplied(digits: &str, unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    // A number may have a sign; a size has none.
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const MIB: u64 = ALLOCATION_UNIT;

    fn choose(required: i64, limit: i64) -> Result<u64> {
        let range = CapacityRange::parse(required, limit)?;
        CapacityRange::choose(Some(&range), 16 * MIB, 1024 * MIB)
    }

    #[test]
    fn malformed_ranges_are_invalid() {
        for (required, limit) in [(0, 0), (-1, 0), (0, -1), (2 << 30, 1 << 30)] {
            let error = CapacityRange::parse(required, limit).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{required} {limit}");
        }
    }

    #[test]
    fn sizes_round_up_and_respect_the_limit() {
        assert_eq!(choose(17 << 20, 0).unwrap(), 17 * MIB);
        assert_eq!(choose((17 << 20) + 1, 0).unwrap(), 18 * MIB);
        assert_eq!(choose(0, 100 << 20).unwrap(), 100 * MIB);
        assert_eq!(choose(1, 0).unwrap(), 16 * MIB);
        assert!(matches!(choose((17 << 20) + 1, (17 << 20) + 1), Err(Error::OutOfRange(_))));
        assert!(matches!(choose(0, 1 << 20), Err(Error::OutOfRange(_))));
        assert!(matches!(choose(i64::MAX, 0), Err(Error::OutOfRange(_))));
    }

    #[test]
    fn no_range_gives_the_preferred_size() {
        assert_eq!(CapacityRange::choose(None, MIB, 5 * MIB).unwrap(), 5 * MIB);
        assert_eq!(CapacityRange::choose(None, 9 * MIB, 5 * MIB).unwrap(), 9 * MIB);
    }

    #[test]
    fn sizes_read_well() {
        let shown = |bytes| Bytes(bytes).to_string();
        assert_eq!(shown(1023), "1023 bytes");
        assert_eq!(shown(1536), "1.5 KiB");
        assert_eq!(shown(10 << 30), "10.0 GiB");
        assert_eq!(shown(u64::MAX), "16777215.9 TiB");
    }

    #[test]
    fn a_fraction_has_to_come_to_whole_bytes() {
        assert_eq!(parse_exact_size("1.5GiB"), Some(3 << 29));
        assert_eq!(parse_exact_size("0.25 Mi"), Some(1 << 18));
        assert_eq!(parse_exact_size("2.50k"), Some(2500));
        assert_eq!(parse_exact_size("10GiB"), Some(10 << 30));
        for bad in [
            "1.5", "0.1KiB", ".5GiB", "1.GiB", "1.5.5GiB", "-1.5GiB", "1.5GB", "9.9e9TiB", "1,5GiB",
        ] {
            assert_eq!(parse_exact_size(bad), None, "{bad}");
        }
        assert_eq!(parse_exact_size("99999999999.5TiB"), None);
    }

    #[test]
    fn settings_have_binary_and_decimal_units() {
        assert_eq!(parse_size("10GiB"), Some(10 << 30));
        assert_eq!(parse_size("10 Gi"), Some(10 << 30));
        assert_eq!(parse_size("500M"), Some(500_000_000));
        assert_eq!(parse_size("4096"), Some(4096));
        for bad in ["", "GiB", "1.5GiB", "-1", "+1GiB", "1Q", "99999999999TiB"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn quantities_are_whole_numbers_with_a_suffix() {
        for (text, bytes) in [
            ("1", 1),
            ("500Mi", 500 << 20),
            ("1Gi", 1 << 30),
            ("10G", 10_000_000_000),
            ("3Ki", 3 << 10),
            ("2k", 2_000),
            ("1Ti", 1 << 40),
            ("7E", 7_000_000_000_000_000_000),
        ] {
            assert_eq!(parse_quantity(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "Gi",
            "1.5Gi",
            "-1Gi",
            "+1",
            "1 Gi",
            "1GiB",
            "1K",
            "0Gi",
            "8Ei",
            "99999999999999999999",
        ] {
            assert_eq!(parse_quantity(text), None, "{text}");
        }
    }
}
