//! The real binary on real loop devices, filesystems, mounts and clusters. Each module is a suite of
//! scripts/suites, which runs it in a process by itself.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod access;
mod addons;
mod busy;
mod ceph;
mod client;
mod daemon;
mod data;
mod delta;
mod demo;
mod doctor;
mod encryption;
mod expand;
mod faults;
mod group;
mod health;
mod hostile;
mod inline;
mod lifecycle;
mod limits;
mod lvm;
mod managed;
mod namespaces;
mod package;
mod privilege;
mod publish;
mod restart;
mod router;
mod space;
mod stage;
mod stress;
mod upgrade;
mod v0;
