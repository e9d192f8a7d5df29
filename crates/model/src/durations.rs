//! How often something happened and how long it took, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in seconds: from calls that need memory alone to copies that take minutes.
pub const DURATION_BOUNDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];

#[derive(Debug, Default)]
pub struct DurationHistogram {
    /// By the first bound that is not exceeded; the last is for those that exceed all.
    counts: [AtomicU64; DURATION_BOUNDS.len() + 1],
    microseconds: AtomicU64,
}

/// At one time, as far as others do not count on.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationCounts {
    pub seconds: f64,
    pub count: u64,
    /// With its upper bound each; not cumulative.
    pub buckets: Vec<(f64, u64)>,
}

impl DurationHistogram {
    pub fn note(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = DURATION_BOUNDS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }

    pub fn counts(&self) -> DurationCounts {
        let bounds = DURATION_BOUNDS.into_iter().chain([f64::MAX]);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let sum = Duration::from_micros(self.microseconds.load(Ordering::Relaxed));
        DurationCounts {
            seconds: sum.as_secs_f64(),
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_the_first_bound_that_holds_them() {
        let histogram = DurationHistogram::default();
        for milliseconds in [1, 2, 2, 600_000] {
            histogram.note(Duration::from_millis(milliseconds));
        }
        let counts = histogram.counts();
        assert_eq!(counts.count, 4);
        assert!((counts.seconds - 600.005).abs() < 1e-9, "{counts:?}");
        let filled: Vec<_> = counts.buckets.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [&(0.001, 1), &(0.0025, 2), &(f64::MAX, 1)]);
    }
}
