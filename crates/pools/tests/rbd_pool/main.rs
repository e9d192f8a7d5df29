//! The rbd pool on a real Ceph, which is started for this binary and gone with it. What the pool
//! says is compared with what the `rbd` command says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod bed;
mod changes;
mod copies;
mod freeing;
mod full;
mod group_leftovers;
mod groups;
mod half_made;
mod inspecting;
mod leftovers;
mod opening;
mod records;
mod removals;
mod snapshots;
mod volumes;
