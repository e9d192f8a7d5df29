//! The daemon with no more rights than it needs.

mod capabilities;
mod lifecycle;
mod seccomp;
mod without_root;
