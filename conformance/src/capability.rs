//! Volume capabilities in short.

use crate::wire::csi::v1::VolumeCapability;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

pub fn block(mode: Mode) -> VolumeCapability {
    with(AccessType::Block(BlockVolume {}), mode)
}

pub fn mount(mode: Mode) -> VolumeCapability {
    with(AccessType::Mount(MountVolume::default()), mode)
}

pub fn mount_of(fs_type: &str, mode: Mode) -> VolumeCapability {
    let mount = MountVolume { fs_type: fs_type.to_owned(), ..MountVolume::default() };
    with(AccessType::Mount(mount), mode)
}

pub fn with(access: AccessType, mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_type: Some(access),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

/// The same access in another mode.
pub fn in_mode(capability: &VolumeCapability, mode: Mode) -> VolumeCapability {
    VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), ..capability.clone() }
}

/// The same access in a mode that no specification names, so that no plugin can support it.
pub fn in_no_mode(capability: &VolumeCapability) -> VolumeCapability {
    VolumeCapability { access_mode: Some(AccessMode { mode: 99 }), ..capability.clone() }
}

pub fn is_block(capability: &VolumeCapability) -> bool {
    matches!(capability.access_type, Some(AccessType::Block(_)))
}
