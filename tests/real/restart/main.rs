//! kill -9 at any moment: workloads do not notice, and every later call works.

mod frozen;
mod in_use;
mod managed;
mod storm;
