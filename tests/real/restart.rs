//! kill -9 at any moment: workloads do not notice, and every later call works.

mod damaged;
mod frozen;
mod in_use;
mod kill_under_load;
mod managed;
mod moved;
mod random;
mod unrecorded;
mod unrecorded_copies;
