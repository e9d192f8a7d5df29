//! csi.v0 (V0).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
