//! The daemon as a process: how it starts, what it refuses, what it tells, how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod absent;
mod apart;
mod bounded;
mod copied;
mod documents;
mod environment;
mod guests;
mod health;
mod hung;
mod hung_targets;
mod left_behind;
mod logs;
mod logs_lost;
mod misconfigured;
mod modes;
mod not_files;
mod secrets;
mod socket;
mod stopping;
