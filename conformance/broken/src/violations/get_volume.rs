//! ControllerGetVolume (GV).

use crate::violation::Violation;

pub(super) const ALL: &[Violation] = &[];
