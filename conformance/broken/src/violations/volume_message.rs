//! The Volume message (VO).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
