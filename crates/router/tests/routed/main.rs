//! Routers and daemons in one process: real TLS over loopback, pools in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cancelling;
mod certificates;
mod cluster;
mod confusion;
mod creating;
mod forgetting;
mod forwarding;
mod groups;
mod hanging;
mod health;
mod lists;
mod requests;
mod unreachable;
mod watched;
