#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn deadlines_are_read_in_all_units() {
    let cases = [
        ("0n", Duration::ZERO),
        ("7n", Duration::from_nanos(7)),
        ("7u", Duration::from_micros(7)),
        ("7m", Duration::from_millis(7)),
        ("7S", Duration::from_secs(7)),
        ("7M", Duration::from_secs(420)),
        ("99999999H", Duration::from_secs(99_999_999 * 3600)),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text), Some(expected), "{text}");
    }
    for text in ["", "S", "7", "-1S", "+1S", "1.5S", "123456789S", "7x", "7é"] {
        assert_eq!(parse(text), None, "{text}");
    }
}
