//! Operations, by what they are about.

pub(crate) mod attaching;
pub(crate) mod changed_blocks;
pub(crate) mod copying;
pub(crate) mod creating;
pub(crate) mod encrypting;
pub(crate) mod group_snapshots;
pub(crate) mod growing;
pub(crate) mod publishing;
pub(crate) mod staging;
pub(crate) mod volume_groups;
