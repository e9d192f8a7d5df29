use std::collections::BTreeSet;

use super::sections;
use crate::row::{row, rows};

#[test]
fn check_names_are_unique() {
    let names: Vec<_> = sections().iter().flat_map(|it| it.checks).map(|it| it.name).collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), distinct.len());
}

#[test]
fn checks_name_existing_rows() {
    for check in sections().iter().flat_map(|it| it.checks) {
        assert!(!check.proves.is_empty(), "{} proves nothing", check.name);
        for id in check.proves {
            assert!(row(id).is_some(), "{} names {id}, which is no row", check.name);
        }
    }
}

/// A row is shown from outside or it is not; each new row has to say which.
#[test]
fn every_row_has_a_check_or_a_reason() {
    let shown: BTreeSet<_> =
        sections().iter().flat_map(|it| it.checks).flat_map(|it| it.proves).copied().collect();
    let reasons: Vec<_> = sections().iter().flat_map(|it| it.unseen).map(|(id, _)| *id).collect();
    let unseen: BTreeSet<_> = reasons.iter().copied().collect();
    let neither: Vec<_> = rows()
        .iter()
        .map(|row| row.id)
        .filter(|id| !shown.contains(id) && !unseen.contains(id))
        .collect();
    assert!(neither.is_empty(), "neither shown nor said to be unseen: {neither:?}");
    let both: Vec<_> = shown.intersection(&unseen).collect();
    assert!(both.is_empty(), "shown, and said to be unseen: {both:?}");
    assert_eq!(unseen.len(), reasons.len(), "a row is twice among the unseen ones");
}
