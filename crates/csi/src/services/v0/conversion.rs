//! Between the messages of csi.v0 and those of csi.v1.

use orlop_model::{Error, Result, TargetPath};

use crate::parse;
use crate::proto::csi::v0::volume_capability::AccessType as V0Access;
use crate::proto::csi::v0::volume_capability::access_mode::Mode as V0Mode;
use crate::proto::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use crate::proto::csi::{v0, v1};

pub(super) fn range(range: v0::CapacityRange) -> v1::CapacityRange {
    v1::CapacityRange { required_bytes: range.required_bytes, limit_bytes: range.limit_bytes }
}

/// The modes that both have, have the same numbers; those that came later are not known here
/// (V0-24).
pub(super) fn capability(wire: v0::VolumeCapability) -> Result<v1::VolumeCapability> {
    let access = |access: V0Access| match access {
        V0Access::Block(_) => AccessType::Block(BlockVolume {}),
        V0Access::Mount(mount) => AccessType::Mount(MountVolume {
            fs_type: mount.fs_type,
            mount_flags: mount.mount_flags,
            volume_mount_group: String::new(),
        }),
    };
    let mode = |mode: v0::volume_capability::AccessMode| match V0Mode::try_from(mode.mode) {
        Ok(_) => Ok(AccessMode { mode: mode.mode }),
        Err(_) => {
            let reason = format!("access mode {} is not one of CSI 0.2's", mode.mode);
            Err(Error::invalid("volume_capability", reason))
        }
    };
    Ok(v1::VolumeCapability {
        access_type: wire.access_type.map(access),
        access_mode: wire.access_mode.map(mode).transpose()?,
    })
}

pub(super) fn capabilities(wire: Vec<v0::VolumeCapability>) -> Result<Vec<v1::VolumeCapability>> {
    wire.into_iter().map(capability).collect()
}

/// V0-08
pub(super) fn volume(volume: v1::Volume) -> v0::Volume {
    v0::Volume {
        capacity_bytes: volume.capacity_bytes,
        id: volume.volume_id,
        attributes: volume.volume_context,
    }
}

/// V0-30: paths have no separate limit here, so the general one holds.
pub(super) fn path(field: &'static str, text: &str) -> Result<TargetPath> {
    parse::check_length(field, text)?;
    TargetPath::parse(field, text)
}
