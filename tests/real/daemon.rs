//! The daemon as a process: how it starts, what it refuses, what it tells, how it ends.

mod absent;
mod clean_run;
mod copied_pool;
mod cross_pool_calls;
mod documents;
mod environment;
mod health;
pub(crate) mod hung;
mod hung_targets;
mod hung_threads;
mod letting_go;
mod log_failures;
mod logs;
mod logs_unread;
mod memory_limit;
pub(crate) mod metrics;
mod misconfigured;
mod modes;
mod overlapping_paths;
mod probes;
mod registration;
mod secrets;
mod socket;
mod special_files;
mod stopping;
pub(crate) mod traces;
mod unconfigured;
