//! Reclaim space (RS).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
