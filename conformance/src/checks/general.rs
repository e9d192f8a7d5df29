//! General rules (GEN): what holds for fields, answers, secrets and overlapping calls everywhere.

pub(super) mod answers;
pub(super) mod fields;
pub(super) mod overlap;
pub(super) mod required;
pub(super) mod secrets;
