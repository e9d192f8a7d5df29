//! Volume groups (VG).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
