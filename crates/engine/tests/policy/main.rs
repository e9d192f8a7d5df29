//! What the engine decides, on pools and a machine that exist in memory only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod absent;
mod capacity;
mod changing_sources;
mod conflicts;
mod controller_publish;
mod copies;
mod create;
mod delete;
mod encryption;
mod expand;
mod fixture;
mod format;
mod groups;
mod health;
mod hidden;
mod inline;
mod lists;
mod modify;
mod mount_groups;
mod node_publish;
mod node_unpublish;
mod older_records;
mod overview;
mod placement;
mod recover;
mod shared;
mod stage;
mod staged_watch;
mod stats;
mod validate;
