//! Volume capabilities and access modes (AM).

pub(super) mod capabilities;
pub(super) mod modes;
