//! ListSnapshots (LS).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
