//! The edge on a real socket, over a pool and a machine that only pretend.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod capabilities;
mod controller_codes;
mod endings;
mod gate;
mod node_codes;
mod plugin;
mod required_fields;
mod secrets;
mod wire;
