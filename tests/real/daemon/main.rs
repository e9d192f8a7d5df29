//! The daemon as a process: how it starts, what it refuses, what it tells, how it ends.

mod health;
mod logs;
mod misconfigured;
mod modes;
mod secrets;
mod socket;
mod stopping;
