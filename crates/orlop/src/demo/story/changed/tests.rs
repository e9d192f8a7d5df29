use super::*;

#[test]
fn bar_shows_which_parts_changed() {
    let shown = bar(&[(0, 10), (25, 2), (550, 10)], 560);
    assert_eq!(shown.chars().count(), 56);
    assert!(shown.starts_with("█░▒░"), "{shown}");
    assert!(shown.ends_with("░█"), "{shown}");
    assert_eq!(bar(&[], 3), "░░░");
}

#[test]
fn place_is_covered_by_ranges_that_touch() {
    assert!(is_covered(&(10..30), &[(0, 20), (20, 10)]));
    assert!(!is_covered(&(10..30), &[(0, 20), (21, 10)]));
    assert!(!is_covered(&(10..30), &[]));
}
