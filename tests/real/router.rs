//! Daemons that carry calls to each other.

mod cluster;
mod configuration;
mod groups;
mod kills;
mod page;
mod traces;
mod volumes;
