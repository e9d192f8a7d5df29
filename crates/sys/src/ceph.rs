//! A Ceph cluster: its objects (librados) and its images (librbd).
//!
//! Both libraries are loaded when a cluster is first connected to, so that a machine without Ceph
//! needs neither. Every symbol that is used is looked up then; without one of them nothing starts,
//! but for those that [`can_clone_by_number`] and [`can_compare_by_number`] ask for.
//!
//! All calls block, at most as long as the timeouts of [`ClusterConfig`] let a single operation
//! with the cluster take. Handles close themselves; a child keeps its parents open.

mod cluster;
mod diff;
pub(crate) mod directory;
mod groups;
mod handle;
mod image;
mod library;
mod locks;
mod objects;
mod omap;
mod snapshots;
mod trash;
mod version;
mod watchers;

pub use cluster::{Cluster, ClusterConfig, FENCED_FOR};
pub use diff::{DiffExtent, Written, can_compare_by_number};
pub use directory::{header_of, metadata_key};
pub use image::{Access, Image, NewImage, Parent, can_clone_by_number};
pub use locks::{IMAGE_LOCK, LockHolder};
pub use objects::IoCtx;
pub use omap::{Update, UpdateOutcome};
pub use snapshots::{ImageSnapshot, SnapshotNamespace, SnapshotRef};
pub use trash::{TRASH, Trashed};
pub use version::library_versions;
pub use watchers::Watcher;
