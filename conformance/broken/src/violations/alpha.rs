//! Alpha surfaces (AL).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
