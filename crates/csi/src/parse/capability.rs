//! VolumeCapability: what a caller wants to do with a volume.

use orlop_model::{
    AccessMode, AccessType, CapabilitySet, Error, MountAccess, MountFlags, Result, VolumeCapability,
};

use super::check_length;
use crate::proto::csi::v1;
use crate::proto::csi::v1::volume_capability::access_mode::Mode;
use crate::proto::csi::v1::volume_capability::{AccessType as WireAccess, MountVolume};

const FIELD: &str = "volume_capability";

/// Why a capability cannot be had. What follows from "unsupported" depends on the call.
enum CapabilityRefusal {
    /// It breaks the protocol, everywhere.
    Malformed(Error),
    /// A legal wish for something that is not made here (AM-04, AM-18).
    Unsupported(String),
}

impl From<Error> for CapabilityRefusal {
    fn from(error: Error) -> Self {
        Self::Malformed(error)
    }
}

impl CapabilityRefusal {
    fn or_invalid(self) -> Error {
        match self {
            Self::Malformed(error) => error,
            Self::Unsupported(reason) => Error::invalid(FIELD, reason),
        }
    }

    fn or_precondition(self) -> Error {
        match self {
            Self::Malformed(error) => error,
            Self::Unsupported(reason) => Error::precondition(format!("{FIELD}: {reason}")),
        }
    }
}

/// In a call that asks what could be: anything unsupported is an invalid argument.
pub(crate) fn capability(wire: v1::VolumeCapability) -> Result<VolumeCapability> {
    parse(wire).map_err(CapabilityRefusal::or_invalid)
}

/// In NodeStageVolume and NodePublishVolume, where a volume exists that was made for less.
pub(crate) fn capability_in_use(wire: v1::VolumeCapability) -> Result<VolumeCapability> {
    parse(wire).map_err(CapabilityRefusal::or_precondition)
}

pub(crate) fn capability_set(wire: Vec<v1::VolumeCapability>) -> Result<CapabilitySet> {
    let parsed: Result<_> = wire.into_iter().map(capability).collect();
    CapabilitySet::new(parsed?)
}

/// In ValidateVolumeCapabilities: the inner error is the answer, not a failure (VC-04).
pub(crate) fn capability_set_to_validate(
    wire: Vec<v1::VolumeCapability>,
) -> Result<std::result::Result<CapabilitySet, String>> {
    let mut capabilities = Vec::with_capacity(wire.len());
    let mut unsupported = None;
    for each in wire {
        match parse(each) {
            Ok(capability) => capabilities.push(capability),
            Err(CapabilityRefusal::Malformed(error)) => return Err(error),
            Err(CapabilityRefusal::Unsupported(reason)) => {
                unsupported = unsupported.or(Some(reason))
            }
        }
    }
    Ok(match unsupported {
        Some(reason) => Err(reason),
        None => CapabilitySet::new(capabilities).map_err(|error| error.to_string()),
    })
}

fn parse(wire: v1::VolumeCapability) -> std::result::Result<VolumeCapability, CapabilityRefusal> {
    let Some(access) = wire.access_type else {
        return Err(Error::invalid(FIELD, "asks for neither block nor mount").into());
    };
    let Some(mode) = wire.access_mode else {
        return Err(Error::invalid(FIELD, "has no access_mode").into());
    };
    Ok(VolumeCapability {
        mode: parse_mode(mode.mode)?,
        access: match access {
            WireAccess::Block(_) => AccessType::Block,
            WireAccess::Mount(mount) => AccessType::Mount(parse_mount(mount)?),
        },
    })
}

fn parse_mode(number: i32) -> std::result::Result<AccessMode, CapabilityRefusal> {
    let Ok(mode) = Mode::try_from(number) else {
        let reason = format!("access mode {number} is not one of CSI 1.12's");
        return Err(CapabilityRefusal::Unsupported(reason));
    };
    Ok(match mode {
        Mode::Unknown => return Err(Error::invalid(FIELD, "has no access mode").into()),
        Mode::SingleNodeWriter => AccessMode::SingleNodeWriter,
        Mode::SingleNodeReaderOnly => AccessMode::SingleNodeReaderOnly,
        Mode::MultiNodeReaderOnly => AccessMode::MultiNodeReaderOnly,
        Mode::MultiNodeSingleWriter => AccessMode::MultiNodeSingleWriter,
        Mode::MultiNodeMultiWriter => AccessMode::MultiNodeMultiWriter,
        Mode::SingleNodeSingleWriter => AccessMode::SingleNodeSingleWriter,
        Mode::SingleNodeMultiWriter => AccessMode::SingleNodeMultiWriter,
    })
}

fn parse_mount(mount: MountVolume) -> std::result::Result<MountAccess, CapabilityRefusal> {
    check_length("fs_type", &mount.fs_type)?;
    let group = parse_group(&mount.volume_mount_group)?;
    let flags = MountFlags::parse(mount.mount_flags)?;
    let fs = match mount.fs_type.as_str() {
        "" => None,
        name => Some(name.parse().map_err(unsupported)?),
    };
    Ok(MountAccess { fs, flags, group })
}

fn unsupported(error: Error) -> CapabilityRefusal {
    CapabilityRefusal::Unsupported(error.to_string())
}

/// `u32::MAX` is the kernel's "leave it as it is", not a group.
fn parse_group(text: &str) -> Result<Option<u32>> {
    if text.is_empty() {
        return Ok(None);
    }
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u32>() {
        Ok(group) if is_number && group != u32::MAX => Ok(Some(group)),
        Ok(_) | Err(_) => {
            Err(Error::invalid("volume_mount_group", "is not a group id in decimal digits"))
        }
    }
}
