//! Group snapshots (GG).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
