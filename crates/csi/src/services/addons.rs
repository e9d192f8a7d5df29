//! CSI-Addons: what it asks of a plugin beyond CSI.

mod identity;
mod key_rotation;
mod reclaim_space;
mod volume_group;

pub(crate) use identity::AddonsIdentity;
pub(crate) use key_rotation::KeyRotation;
pub(crate) use reclaim_space::ReclaimSpace;
pub(crate) use volume_group::VolumeGroups;
