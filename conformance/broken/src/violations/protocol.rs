//! Protocol (PR).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
