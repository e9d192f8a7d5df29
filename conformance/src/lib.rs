//! A conformance suite for plugins of the Container Storage Interface: CSI 1.12, CSI 0.2, and
//! CSI-Addons' volume groups and reclaim space.
//!
//! It talks to a plugin over its socket alone, so that it runs against any of them. Each check
//! names the requirement rows (`requirements.md`) that it proves. [`runner`] runs checks,
//! [`verdict`] says what a run means for each row, [`report`] tells people and programs.

mod audit;
pub mod capability;
pub mod check;
pub mod checks;
pub mod client;
pub mod fields;
pub mod inside;
mod journal;
pub mod known;
mod need;
pub mod offers;
pub mod options;
mod plugin;
pub mod report;
pub mod row;
pub mod runner;
pub mod source;
mod trial;
mod undo;
pub mod verdict;
pub mod wire;

pub use check::{Check, Failure, Stop};
pub use need::Need;
pub use plugin::Plugin;
pub use trial::{Answer, Mounted, Placed, Placing, Statfs, Trial, V0Placed, code_name};
