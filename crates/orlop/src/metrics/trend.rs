//! When will a pool be full, if it goes on as in the last day?

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

const SPAN: Duration = Duration::from_secs(24 * 60 * 60);
/// The interval between samples.
const STEP: Duration = Duration::from_secs(5 * 60);
/// Over a shorter time, a single copy would be taken for a trend.
const MIN_SPAN: Duration = Duration::from_secs(30 * 60);

/// Of each pool, by its name.
#[derive(Debug, Default)]
pub(super) struct Trends(BTreeMap<String, VecDeque<(Instant, u64)>>);

impl Trends {
    /// In seconds, from now on; infinite if the space does not become less, or it is too early to tell.
    pub(super) fn note(&mut self, pool: &str, now: Instant, left: u64) -> f64 {
        let samples = self.0.entry(pool.to_owned()).or_default();
        while samples.front().is_some_and(|(at, _)| now.duration_since(*at) > SPAN) {
            samples.pop_front();
        }
        if samples.back().is_none_or(|(at, _)| now.duration_since(*at) >= STEP) {
            samples.push_back((now, left));
        }
        let span = samples.front().map_or(Duration::ZERO, |(at, _)| now.duration_since(*at));
        if span < MIN_SPAN {
            return f64::INFINITY;
        }
        let loss = -slope(
            samples.iter().map(|(at, left)| (-now.duration_since(*at).as_secs_f64(), real(*left))),
        );
        if loss > 0.0 { real(left) / loss } else { f64::INFINITY }
    }
}

/// Of the line of least squares.
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let (mut count, mut mean_x, mut mean_y) = (0.0, 0.0, 0.0);
    for (x, y) in points.clone() {
        count += 1.0;
        mean_x += (x - mean_x) / count;
        mean_y += (y - mean_y) / count;
    }
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (x, y) in points {
        covariance += (x - mean_x) * (y - mean_y);
        variance += (x - mean_x) * (x - mean_x);
    }
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

/// To 32 significant bits: more than a prediction has.
fn real(bytes: u64) -> f64 {
    let shift = u64::BITS.saturating_sub(bytes.leading_zeros()).saturating_sub(u32::BITS);
    let kept = u32::try_from(bytes >> shift).unwrap_or(u32::MAX);
    f64::from(kept) * f64::from(shift).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_pool_that_fills_up_steadily_has_a_date() {
        let mut trends = Trends::default();
        let begin = Instant::now();
        let mut predicted = 0.0;
        // 1 MiB each minute, of 1000.
        for minute in 0..60 {
            let now = begin + Duration::from_secs(60 * minute);
            predicted = trends.note("p", now, (1000 - minute) * MIB);
            assert_eq!(minute < 30, predicted.is_infinite(), "minute {minute}: {predicted}");
        }
        let minutes = predicted / 60.0;
        assert!((minutes - 941.0).abs() < 1.0, "{minutes}");
        assert!(trends.0["p"].len() <= 13, "{}", trends.0["p"].len());
    }

    #[test]
    fn a_pool_that_stays_or_empties_has_none() {
        let mut trends = Trends::default();
        let begin = Instant::now();
        for hour in 0..48 {
            let now = begin + Duration::from_secs(3600 * hour);
            assert!(trends.note("same", now, 5 * MIB).is_infinite());
            assert!(trends.note("more", now, hour * MIB).is_infinite());
        }
        assert!(trends.0["same"].len() <= 25, "a day");
    }

    #[test]
    fn large_numbers_keep_their_size() {
        for bytes in [0, 1, u64::from(u32::MAX), (1 << 40) + (1 << 20), u64::MAX] {
            let relative = (real(bytes) / real(bytes.max(1)) - 1.0).abs();
            assert!(bytes == 0 || relative < 1e-9);
        }
        assert!((real(3 << 40) - 3.0 * 40f64.exp2()).abs() < 1.0);
    }
}
