//! Access modes (AM).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
