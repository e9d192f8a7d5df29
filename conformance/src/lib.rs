//! A conformance suite for plugins of the Container Storage Interface: CSI 1.12, CSI 0.2, and
//! CSI-Addons' volume groups and reclaim space.
//!
//! It talks to a plugin over its socket alone, so that it runs against any of them. Each check
//! names the requirement rows (`requirements.md`) that it proves. [`runner`] runs checks,
//! [`verdict`] says what a run means for each row, [`report`] tells people and programs.

mod audit;
mod call_log;
pub mod capability;
pub mod check;
mod check_context;
pub mod checks;
pub mod client;
pub mod fields;
pub mod internal_tests;
pub mod known_deviations;
mod need;
pub mod options;
mod plugin;
pub mod plugin_features;
pub mod report;
pub mod row;
pub mod runner;
pub mod source;
mod undo;
pub mod verdict;
pub mod wire;

pub use check::{Check, Failure, Stop};
pub use check_context::{
    Answer, CheckContext, Mounted, Placed, Placing, Statfs, V0Placed, code_name,
};
pub use need::Need;
pub use plugin::Plugin;
