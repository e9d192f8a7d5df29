//! Volume groups (VG).

mod failures;
mod lifecycle;
mod listing;
mod membership;
mod refusals;

pub(super) use failures::SECTION as FAILURES;
pub(super) use lifecycle::SECTION as LIFECYCLE;
pub(super) use listing::SECTION as LISTING;
pub(super) use membership::SECTION as MEMBERSHIP;
pub(super) use refusals::SECTION as REFUSALS;
