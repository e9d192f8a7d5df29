//! Volume groups (VG).

mod calls;
mod errors;

pub(super) use calls::ALL as CALLS;
pub(super) use errors::ALL as ERRORS;
