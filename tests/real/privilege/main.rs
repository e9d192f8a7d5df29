//! The daemon with no more rights than it needs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod capabilities;
mod lifecycle;
mod seccomp;
mod without_root;
