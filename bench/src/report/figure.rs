//! Figures as people read them: three digits, and a unit that fits.

use std::fmt;

use crate::results::Unit;
use crate::series::Ratio;

pub(crate) struct Figure(pub(crate) Unit, pub(crate) f64);

impl fmt::Display for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(unit, value) = *self;
        let (scaled, name) = match unit {
            Unit::Time if value < 1e-3 => (value * 1e6, " µs"),
            Unit::Time if value < 1.0 => (value * 1e3, " ms"),
            Unit::Time => (value, " s"),
            Unit::Rate => (value, "/s"),
            Unit::Bytes => (value / f64::from(1 << 20), " MiB"),
            Unit::Throughput => (value / f64::from(1 << 20), " MiB/s"),
        };
        write!(formatter, "{}{name}", digits(scaled))
    }
}

/// About three of them.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        medium if medium < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [value, low, high] = [self.value, self.low, self.high].map(digits);
        // Of one sample nothing else can be drawn.
        if low == high {
            return write!(formatter, "{value}x");
        }
        write!(formatter, "{value}x ({low} to {high})")
    }
}

#[cfg(test)]
mod tests;
