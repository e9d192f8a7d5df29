//! The requirement rows, read from the sheet that people read.

use std::fmt;
use std::sync::LazyLock;

const SHEET: &str = include_str!("../requirements.md");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Must,
    MustNot,
    Should,
    ShouldNot,
    May,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "MUST" => Some(Self::Must),
            "MUST NOT" => Some(Self::MustNot),
            "SHOULD" => Some(Self::Should),
            "SHOULD NOT" => Some(Self::ShouldNot),
            "MAY" => Some(Self::May),
            _ => None,
        }
    }

    pub fn binds(self) -> bool {
        matches!(self, Self::Must | Self::MustNot)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Must => "MUST",
            Self::MustNot => "MUST NOT",
            Self::Should => "SHOULD",
            Self::ShouldNot => "SHOULD NOT",
            Self::May => "MAY",
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub id: &'static str,
    pub level: Level,
    /// The source does not state it outright: it is the reading that the sheet chose.
    pub chosen: bool,
    pub when: &'static str,
    pub then: &'static str,
}

impl Row {
    /// `CV` of `CV-05`.
    pub fn prefix(&self) -> &'static str {
        prefix_of(self.id)
    }

    fn parse(line: &'static str) -> Option<Self> {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let id = cells.next().filter(|id| is_id(id))?;
        let level = cells.next()?;
        let (when, then) = (cells.next()?, cells.next()?);
        let plain = level.trim_end_matches('†');
        Some(Self { id, level: Level::parse(plain)?, chosen: plain != level, when, then })
    }
}

pub fn prefix_of(id: &str) -> &str {
    id.split_once('-').map_or(id, |(prefix, _)| prefix)
}

/// `CV-05`, `V0-12`
fn is_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(prefix, number)| {
        prefix.starts_with(|first: char| first.is_ascii_uppercase())
            && prefix.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
            && !number.is_empty()
            && number.chars().all(|c| c.is_ascii_digit())
    })
}

/// All rows, in the order of the sheet.
pub fn rows() -> &'static [Row] {
    static ROWS: LazyLock<Vec<Row>> =
        LazyLock::new(|| SHEET.lines().filter_map(Row::parse).collect());
    &ROWS
}

pub fn row(id: &str) -> Option<&'static Row> {
    rows().iter().find(|row| row.id == id)
}

#[cfg(test)]
#[path = "row_tests.rs"]
mod tests;
