//! CSI-Addons: what it asks of a plugin beyond CSI.

mod identity;
mod reclaim_space;
mod volume_group;

pub(crate) use identity::AddonsIdentity;
pub(crate) use reclaim_space::ReclaimSpace;
pub(crate) use volume_group::VolumeGroups;
