//! General rules (GEN).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
