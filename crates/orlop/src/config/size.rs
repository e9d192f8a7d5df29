//! Sizes as people write them: `10GiB`, `1.5 TiB` is not one, `500M`, `1073741824`.

const UNITS: [(&str, u64); 13] = [
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

pub(super) fn parse(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text.get(digits.len()..)?.trim();
    // A number may have a sign; a size has none.
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn binary_and_decimal_units() {
        assert_eq!(parse("10GiB"), Some(10 << 30));
        assert_eq!(parse("10 Gi"), Some(10 << 30));
        assert_eq!(parse("500M"), Some(500_000_000));
        assert_eq!(parse("4096"), Some(4096));
        for bad in ["", "GiB", "1.5GiB", "-1", "+1GiB", "1Q", "99999999999TiB"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
