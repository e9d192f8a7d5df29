//! The Snapshot message (SN).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
