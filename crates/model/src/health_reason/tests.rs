use std::collections::BTreeSet;

use super::*;

#[test]
fn words_are_distinct_and_in_camel_case() {
    let words: BTreeSet<&str> = HealthReason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(words.len(), HealthReason::ALL.len());
    for word in words {
        assert!(word.starts_with(|first: char| first.is_ascii_uppercase()), "{word}");
        assert!(word.chars().all(|letter| letter.is_ascii_alphanumeric()), "{word}");
        assert!(word.chars().any(|letter| letter.is_ascii_lowercase()), "{word}");
    }
}

#[test]
fn an_absent_pool_is_not_one_with_errors() {
    let unreachable = Error::unreachable("use pool main", "its disk is not mounted");
    assert_eq!(HealthReason::of(&unreachable), HealthReason::PoolUnreachable);
    let failed = Error::failed("inspect the data", "Input/output error");
    assert_eq!(HealthReason::of(&failed), HealthReason::PoolErrors);
    let damaged = Error::damaged("volume a", "its record cannot be read");
    assert_eq!(HealthReason::of(&damaged), HealthReason::RecordDamaged);
}
