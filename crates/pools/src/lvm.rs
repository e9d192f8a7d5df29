//! Volumes as logical volumes of LVM: thin ones in a thin pool, thick ones beside it.
//!
//! All is done by the command `lvm` (`commands.rs`), whose reports are parsed in `report.rs` and whose complaints become
//! errors in `failure.rs`.

mod commands;
mod failure;
mod layout;
mod report;
#[cfg(test)]
#[cfg(test)]
mod testbed;
#[cfg(test)]
mod tests;
