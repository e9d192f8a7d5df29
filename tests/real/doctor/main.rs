//! `orlop doctor` and `orlop pool`: each finding is made for real, found, put right, and gone
//! afterwards; nothing else is touched.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adopting;
mod fixture;
mod machine;
mod pool;
mod running_daemon;
