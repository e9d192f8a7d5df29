//! The edge on a real socket, over a pool and a machine that only pretend.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod addons_socket;
mod block_metadata;
mod capabilities;
mod controller_codes;
mod documented;
mod gate;
mod group_snapshots;
mod health;
mod interrupted_calls;
mod introspection;
mod monitor;
mod node_codes;
mod plugin;
mod reclaim_space;
mod required_fields;
mod secrets;
mod slow_reader;
mod v0_codes;
mod v0_volumes;
mod volume_groups;
mod waiting;
mod wire;
