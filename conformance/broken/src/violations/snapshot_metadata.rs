//! Snapshot metadata (SM).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
