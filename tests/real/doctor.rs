//! `orlop doctor` and `orlop pool`: each finding is made for real, found, put right, and gone
//! afterwards; nothing else is touched.

mod adopting;
mod bundle;
mod fixture;
mod in_use;
mod machine;
mod pool;
mod run_directory;
mod running_daemon;
mod soundness;
mod starting;
