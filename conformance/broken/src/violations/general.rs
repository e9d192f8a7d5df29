//! General rules (GEN).

mod answers;
mod fields;
mod overlap;
mod secrets;

use crate::violation::Violation;

pub(super) const ALL: &[&[Violation]] = &[fields::ALL, answers::ALL, secrets::ALL, overlap::ALL];
