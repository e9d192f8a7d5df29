//! Routers and daemons in one process: real TLS over loopback, pools in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod away;
mod carrying;
mod certificates;
mod cluster;
mod confusion;
mod creating;
mod forgetting;
mod groups;
mod health;
mod lists;
mod requests;
