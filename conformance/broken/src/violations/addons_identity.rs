//! CSI-Addons identity (CA).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
