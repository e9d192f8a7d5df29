//! The rbd pool on a real Ceph, which is started for this binary and gone with it. What the pool
//! says is compared with what the `rbd` command says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod by_hand;
mod changes;
mod copies;
mod fixture;
mod freeing;
mod full;
mod groups;
mod inspecting;
mod lengths;
mod opening;
mod orphaned_drafts;
mod orphaned_groups;
mod orphans;
mod records;
mod removals;
mod restored;
mod snapshots;
mod trashed;
mod volumes;
