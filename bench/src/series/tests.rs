use super::*;

#[test]
fn medians_and_ranks() {
    assert_eq!(Series::of([3.0, 1.0, 2.0]).median(), 2.0);
    assert_eq!(Series::of([4.0, 1.0, 2.0, 3.0]).median(), 2.5);
    let hundred = Series::of((1..=100).map(f64::from));
    assert_eq!(hundred.p99(), 99.0);
    assert_eq!(Series::of([1.0, 9.0, 2.0]).p99(), 9.0);
    assert!(Series::default().median().is_nan() && Series::default().p99().is_nan());
}

#[test]
fn ratio_interval_contains_the_value_and_widens_with_noise() {
    let quiet = Series::of((0..50).map(|i| 10.0 + f64::from(i % 3) / 10.0));
    let noisy = Series::of((0..50).map(|i| 5.0 + f64::from(i % 10)));
    let ratio = noisy.ratio_to(&quiet);
    assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
    assert!(ratio.high - ratio.low > 0.1, "{ratio:?}");
    let same = quiet.ratio_to(&quiet);
    assert!(same.low > 0.95 && same.high < 1.05, "{same:?}");
}

#[test]
fn sums_keep_rounds_together() {
    let sum = Series::of([1.0, 2.0]).plus(&Series::of([10.0, 20.0]));
    assert_eq!(sum, Series::of([11.0, 22.0]));
}

#[test]
fn ratio_by_round_is_independent_of_disk_speed() {
    let speeds = [1.0, 1.0, 10.0, 1.0, 10.0, 10.0];
    let [ours, baseline] =
        [90.0, 100.0].map(|figure| Series::of(speeds.map(|speed| figure * speed)));
    let ratio = ours.ratio_by_round(&baseline);
    for bound in [ratio.low, ratio.value, ratio.high] {
        assert!((bound - 0.9).abs() < 1e-9, "{ratio:?}");
    }
    let (first, second) = (Series::of([5.0, 20.0]), Series::of([10.0, 10.0]));
    let ratio = first.ratio_by_round(&second);
    assert!((ratio.value - 1.0).abs() < 1e-9 && ratio.low < 0.6 && ratio.high > 1.6, "{ratio:?}");
    let stalled = Series::of([0.01, 10.0, 10.0, 10.0, 10.0, 10.0]);
    let ratio = stalled.ratio_by_round(&Series::of([10.0; 6]));
    assert!((ratio.value - 1.0).abs() < 1e-9, "{ratio:?}");
}
