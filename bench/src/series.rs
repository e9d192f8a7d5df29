//! Samples of one figure, and what can be said of them.

use std::iter::zip;

use orlop_tests::Rng;

const RESAMPLES: usize = 1000;

/// In the order in which they were taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series(Vec<f64>);

/// A quotient, with the interval that holds 95 % of what other samples of the same
/// distribution would have given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Series {
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        Self(samples.into_iter().collect())
    }

    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sample by sample: what belongs to one round stays together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self::of(zip(&self.0, &other.0).map(|(a, b)| a + b))
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    pub(crate) fn median(&self) -> f64 {
        median(&mut self.0.clone())
    }

    /// By nearest rank: of fewer than a hundred samples it is the largest.
    pub(crate) fn p99(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * 99).div_ceil(100);
        rank.checked_sub(1).map_or(f64::NAN, |index| sorted[index])
    }

    pub(crate) fn ratio_to(&self, other: &Self) -> Ratio {
        let value = self.median() / other.median();
        Ratio::new(value, |rng| self.resample(rng) / other.resample(rng))
    }

    /// The geometric mean of the rounds' quotients, without the most extreme ones. A disk that is
    /// twice as fast in one minute as in the next is so for both of a round; what the later one of
    /// a round gains or loses by that is made up for when it is the earlier one; and a disk that
    /// stands still for a moment does so in one round.
    pub(crate) fn ratio_by_round(&self, other: &Self) -> Ratio {
        let logarithms: Vec<f64> = zip(&self.0, &other.0).map(|(a, b)| (a / b).ln()).collect();
        Ratio::new(middle_mean(logarithms.clone()).exp(), |rng| {
            middle_mean(
                logarithms
                    .iter()
                    .map(|_| *rng.choice(&logarithms).expect("a non-empty list"))
                    .collect(),
            )
            .exp()
        })
    }

    /// Round by round.
    pub(crate) fn geometric_mean(&self, other: &Self) -> Self {
        Self::of(zip(&self.0, &other.0).map(|(a, b)| (a * b).sqrt()))
    }

    fn resample(&self, rng: &mut Rng) -> f64 {
        let mut drawn: Vec<f64> =
            self.0.iter().map(|_| *rng.choice(&self.0).expect("a non-empty list")).collect();
        median(&mut drawn)
    }
}

impl Ratio {
    fn new(value: f64, resample: impl Fn(&mut Rng) -> f64) -> Self {
        // The same figures give the same interval.
        let mut rng = Rng::with_seed(1);
        let mut others: Vec<f64> = (0..RESAMPLES).map(|_| resample(&mut rng)).collect();
        others.sort_by(f64::total_cmp);
        let (low, high) = (others[RESAMPLES / 40], others[RESAMPLES - 1 - RESAMPLES / 40]);
        Self { value, low, high }
    }
}

/// Of the middle two thirds.
fn middle_mean(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    let extreme = samples.len() / 6;
    let middle = &samples[extreme..samples.len() - extreme];
    let count = u32::try_from(middle.len()).expect("not that many");
    middle.iter().sum::<f64>() / f64::from(count)
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    match samples {
        [] => f64::NAN,
        _ if samples.len().is_multiple_of(2) => f64::midpoint(samples[middle - 1], samples[middle]),
        _ => samples[middle],
    }
}

#[cfg(test)]
mod tests;
