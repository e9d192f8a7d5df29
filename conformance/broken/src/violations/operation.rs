//! Operation (OP).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
