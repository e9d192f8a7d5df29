//! Daemons that carry calls to each other.

mod cluster;
mod configuration;
mod ending;
mod groups;
mod kills;
mod page;
mod secrets;
mod traces;
mod volumes;
