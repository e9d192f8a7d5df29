//! Sizes and the ranges that callers ask for.

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
    fn no_range_takes_the_preferred_size() {
        assert_eq!(CapacityRange::choose(None, MIB, 5 * MIB).unwrap(), 5 * MIB);
        assert_eq!(CapacityRange::choose(None, 9 * MIB, 5 * MIB).unwrap(), 9 * MIB);
    }
}
