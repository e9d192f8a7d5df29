//! csi.v0 (V0).

mod behaviour;
mod errors;
mod messages;

pub(super) use behaviour::ALL as BEHAVIOUR;
pub(super) use errors::ALL as ERRORS;
pub(super) use messages::ALL as MESSAGES;
