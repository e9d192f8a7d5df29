//! csi.v0 (V0).

mod controller;
mod controller_errors;
mod identity;
mod messages;
mod node;
mod requests;

pub(super) use controller::SECTION as CONTROLLER;
pub(super) use controller_errors::SECTION as CONTROLLER_ERRORS;
pub(super) use identity::SECTION as IDENTITY;
pub(super) use messages::SECTION as MESSAGES;
pub(super) use node::SECTION as NODE;
pub(super) use requests::SECTION as REQUESTS;
