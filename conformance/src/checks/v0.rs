//! csi.v0 (V0).

mod controller;
mod controller_errors;
mod identity;
mod messages;
mod node;
mod requests;

pub(super) use controller::CHAPTER as CONTROLLER;
pub(super) use controller_errors::CHAPTER as CONTROLLER_ERRORS;
pub(super) use identity::CHAPTER as IDENTITY;
pub(super) use messages::CHAPTER as MESSAGES;
pub(super) use node::CHAPTER as NODE;
pub(super) use requests::CHAPTER as REQUESTS;
