//! CSI-Addons with real data: who it is, volume groups, space that comes back.

mod groups;
mod reclaim;
mod sockets;
