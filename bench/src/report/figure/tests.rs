use super::*;

#[test]
fn units_fit_the_figure() {
    let shown = |unit, value| Figure(unit, value).to_string();
    assert_eq!(shown(Unit::Time, 0.000_012_34), "12.3 µs");
    assert_eq!(shown(Unit::Time, 0.001_234), "1.23 ms");
    assert_eq!(shown(Unit::Time, 123.4), "123 s");
    assert_eq!(shown(Unit::Rate, 1234.5), "1234/s");
    assert_eq!(shown(Unit::Bytes, 1.5 * 1024.0 * 1024.0), "1.50 MiB");
}

#[test]
fn ratio_is_shown_with_its_interval() {
    let ratio = Ratio { value: 51.23, low: 9.5, high: 120.4 };
    assert_eq!(ratio.to_string(), "51.2x (9.50 to 120)");
    assert_eq!(Ratio { value: 2.0, low: 2.0, high: 2.0 }.to_string(), "2.00x");
}
