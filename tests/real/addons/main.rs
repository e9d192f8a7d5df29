//! CSI-Addons with real data: who it is, volume groups, space that comes back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod groups;
mod reclaim;
mod sockets;
