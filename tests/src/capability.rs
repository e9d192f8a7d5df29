//! Volume capabilities, in few words.

pub use orlop_csi::proto::csi::v1::volume_capability::access_mode::Mode;

use orlop_csi::proto::csi::v1::VolumeCapability;
use orlop_csi::proto::csi::v1::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume,
};

/// Mounted by one node, which writes. An empty name leaves the filesystem open.
pub fn mount(fs_type: &str) -> VolumeCapability {
    with_access(AccessType::Mount(MountVolume {
        fs_type: fs_type.to_owned(),
        ..MountVolume::default()
    }))
}

/// The raw device on one node, which writes.
pub fn block() -> VolumeCapability {
    with_access(AccessType::Block(BlockVolume {}))
}

fn with_access(access: AccessType) -> VolumeCapability {
    VolumeCapability {
        access_type: Some(access),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    }
}

pub trait VolumeCapabilityExt: Sized {
    fn mode(self, mode: Mode) -> Self;
    /// Has no effect on block capabilities, as the other two.
    fn fs(self, fs_type: &str) -> Self;
    fn flags(self, flags: &[&str]) -> Self;
    fn group(self, group: &str) -> Self;
    fn is_block(&self) -> bool;
}

impl VolumeCapabilityExt for VolumeCapability {
    fn mode(mut self, mode: Mode) -> Self {
        self.access_mode = Some(AccessMode { mode: mode.into() });
        self
    }

    fn fs(self, fs_type: &str) -> Self {
        change_mount(self, |mount| mount.fs_type = fs_type.to_owned())
    }

    fn flags(self, flags: &[&str]) -> Self {
        change_mount(self, |mount| {
            mount.mount_flags = flags.iter().map(ToString::to_string).collect();
        })
    }

    fn group(self, group: &str) -> Self {
        change_mount(self, |mount| mount.volume_mount_group = group.to_owned())
    }

    fn is_block(&self) -> bool {
        matches!(self.access_type, Some(AccessType::Block(_)))
    }
}

fn change_mount(
    mut capability: VolumeCapability,
    change: impl FnOnce(&mut MountVolume),
) -> VolumeCapability {
    if let Some(AccessType::Mount(mount)) = &mut capability.access_type {
        change(mount);
    }
    capability
}
