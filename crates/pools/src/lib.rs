//! Places where volumes are kept, behind `orlop_model::Pool`.
//!
//! [`image`] keeps them as files in a directory, attached by loop devices; [`lvm`] as logical volumes; [`rbd`] as
//! images of a Ceph cluster, which many machines reach; `memory` only pretends, for tests of the layers above
//! without root, and is there with the feature `testing`.

mod capture_progress;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod image;
mod in_use;
pub mod lvm;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod merged_ranges;
mod poison;
pub mod rbd;
mod recorded;
mod shortage;

pub use image::{Floor, ImagePool, ImagePoolConfig};
pub use lvm::{LvmPool, LvmPoolConfig};
#[cfg(any(test, feature = "testing"))]
pub use memory::{MemoryPool, MemoryPoolConfig};
pub use rbd::{RbdPool, RbdPoolConfig};
