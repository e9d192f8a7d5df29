#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::{Level, row, rows};

#[test]
fn every_table_line_of_the_sheet_is_a_row() {
    let lines = super::SHEET.lines().filter(|line| {
        line.strip_prefix("| ").and_then(|line| line.split(' ').next()).is_some_and(super::is_id)
    });
    assert_eq!(lines.count(), rows().len());
    assert_eq!(rows().len(), 813);
}

#[test]
fn ids_are_unique() {
    let ids: BTreeSet<_> = rows().iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), rows().len());
}

#[test]
fn row_has_level_and_choice() {
    let stated = row("CV-05").unwrap();
    assert_eq!((stated.level, stated.chosen, stated.prefix()), (Level::Must, false, "CV"));
    let chosen = row("CV-17").unwrap();
    assert_eq!((chosen.level, chosen.chosen), (Level::Must, true));
    assert_eq!(row("VO-04").unwrap().level, Level::MustNot);
}
