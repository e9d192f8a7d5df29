//! CapacityRange (CR).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
