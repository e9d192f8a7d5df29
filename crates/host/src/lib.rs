//! The machine on which volumes are used: [`LinuxHost`] for real, and, with the feature `testing`,
//! `MemoryHost` for tests of the engine and the edge that need neither root nor a kernel.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod linux;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod same_mount;

pub use linux::{
    EncryptionConfig, KeyFiles, LinuxHost, LinuxHostConfig, MachineScan, ServedPool, ThawsUnderWay,
    VolumeExistence,
};
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryHost;
