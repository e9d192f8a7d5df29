//! CreateSnapshot (CS).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
