//! What a caller says of the volume that it wants: how it is to be used, its parameters, where it goes, and
//! what it starts with.

use std::collections::BTreeMap;

use orlop_model::parameters::is_foreign_key;
use orlop_model::{
    AccessMode, AccessType, CapabilitySet, ContentSource, Error, IoLimitsChange, MountAccess,
    MountFlags, Result, Topology, TopologyRequirement, VolumeCapability, VolumeParameters,
};

use super::{about, check_length, check_map_size};
use crate::features::Features;
use crate::proto::csi::v1;
use crate::proto::csi::v1::volume_capability::access_mode::Mode;
use crate::proto::csi::v1::volume_capability::{AccessType as WireAccess, MountVolume};
use crate::proto::csi::v1::volume_content_source::Type;

const CAPABILITY: &str = "volume_capability";

const SOURCE: &str = "volume_content_source";

const MAX_VOLUMES_KEY: &str = "maxVolumes";

/// As many as a node has by default.
const LARGEST_GROUP: u32 = 1000;

const NO_LIMITS: &str = "asks for I/O limits, which cannot be set here";

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
            Self::Unsupported(reason) => Error::invalid(CAPABILITY, reason),
        }
    }

    fn or_precondition(self) -> Error {
        match self {
            Self::Malformed(error) => error,
            Self::Unsupported(reason) => Error::precondition(format!("{CAPABILITY}: {reason}")),
        }
    }
}

/// In a call that asks what could be: anything unsupported is an invalid argument.
pub(crate) fn capability(wire: v1::VolumeCapability) -> Result<VolumeCapability> {
    parse_capability(wire).map_err(CapabilityRefusal::or_invalid)
}

/// In NodeStageVolume and NodePublishVolume, where a volume exists that was made for less.
pub(crate) fn capability_in_use(wire: v1::VolumeCapability) -> Result<VolumeCapability> {
    parse_capability(wire).map_err(CapabilityRefusal::or_precondition)
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
        match parse_capability(each) {
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

fn parse_capability(
    wire: v1::VolumeCapability,
) -> std::result::Result<VolumeCapability, CapabilityRefusal> {
    let Some(access) = wire.access_type else {
        return Err(Error::invalid(CAPABILITY, "asks for neither block nor mount").into());
    };
    let Some(mode) = wire.access_mode else {
        return Err(Error::invalid(CAPABILITY, "has no access_mode").into());
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
        Mode::Unknown => return Err(Error::invalid(CAPABILITY, "has no access mode").into()),
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

/// What the volume is, and the limits that it starts with.
pub(crate) fn volume_parameters(
    parameters: &BTreeMap<String, String>,
    features: &Features,
) -> Result<(VolumeParameters, IoLimitsChange)> {
    check_map_size("parameters", parameters)?;
    let (parsed, limits) = VolumeParameters::parse(parameters)?;
    if !limits.is_empty() && !features.limits {
        return Err(Error::invalid("parameters", NO_LIMITS));
    }
    Ok((parsed, limits))
}

/// The parameters of GetCapacity. An invalid one is ignored: an orchestrator that sees a capacity of 0 takes the
/// storage for full, and never sends the CreateVolume that would say what is wrong.
pub(crate) fn capacity_parameters(
    parameters: &BTreeMap<String, String>,
) -> Result<VolumeParameters> {
    check_map_size("parameters", parameters)?;
    let (parsed, refused) = VolumeParameters::parse_leniently(parameters);
    for error in refused {
        tracing::debug!(
            %error,
            "GetCapacity ignores an invalid parameter; CreateVolume will refuse it"
        );
    }
    Ok(parsed)
}

/// CV-21: without MODIFY_VOLUME there are no mutable parameters.
pub(crate) fn mutable_parameters(
    parameters: &BTreeMap<String, String>,
    features: &Features,
) -> Result<IoLimitsChange> {
    const FIELD: &str = "mutable_parameters";
    check_map_size(FIELD, parameters)?;
    if !parameters.is_empty() && !features.limits {
        return Err(Error::invalid(FIELD, NO_LIMITS));
    }
    IoLimitsChange::parse(parameters).map_err(|error| about(FIELD, error))
}

/// Snapshots have no parameters of ours; what orchestrators add for themselves is theirs (CS-13,
/// GG-17).
pub(crate) fn check_snapshot_parameters(parameters: &BTreeMap<String, String>) -> Result<()> {
    check_map_size("parameters", parameters)?;
    match parameters.keys().find(|key| !is_foreign_key(key)) {
        Some(key) => Err(unknown(key, "a snapshot; there are none")),
        None => Ok(()),
    }
}

/// How many volumes a group is to take at most, if that is said (VG-11).
pub(crate) fn volume_group_parameters(
    parameters: &BTreeMap<String, String>,
) -> Result<Option<u32>> {
    check_map_size("parameters", parameters)?;
    let mut max = None;
    for (key, value) in parameters.iter().filter(|(key, _)| !is_foreign_key(key)) {
        if key != MAX_VOLUMES_KEY {
            return Err(unknown(key, "a volume group; the only one is maxVolumes"));
        }
        max = Some(parse_max_volumes(value)?);
    }
    Ok(max)
}

fn parse_max_volumes(text: &str) -> Result<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(max) if is_number && (1..=LARGEST_GROUP).contains(&max) => Ok(max),
        Ok(_) | Err(_) => {
            let reason = format!("{MAX_VOLUMES_KEY} is not a number from 1 to {LARGEST_GROUP}");
            Err(Error::invalid("parameters", reason))
        }
    }
}

fn unknown(key: &str, of_what: &str) -> Error {
    let key = orlop_model::id::shown(key);
    Error::invalid("parameters", format!("{key} is not a parameter of {of_what}"))
}

/// TP-08.
pub(crate) fn topology(field: &'static str, message: v1::Topology) -> Result<Topology> {
    check_map_size(field, &message.segments)?;
    Topology::parse(message.segments).map_err(|reason| Error::invalid(field, reason))
}

/// TP-09, TP-18.
pub(crate) fn topology_requirement(
    requirement: Option<v1::TopologyRequirement>,
) -> Result<Option<TopologyRequirement>> {
    let Some(requirement) = requirement else {
        return Ok(None);
    };
    let parse_all = |topologies: Vec<v1::Topology>| -> Result<Vec<Topology>> {
        topologies
            .into_iter()
            .map(|message| topology("accessibility_requirements", message))
            .collect()
    };
    let requisite = parse_all(requirement.requisite)?;
    let preferred = parse_all(requirement.preferred)?;
    TopologyRequirement::new(requisite, preferred).map(Some)
}

/// A source that was never issued here does not exist (CV-28, CV-36).
pub(crate) fn content_source(
    source: Option<v1::VolumeContentSource>,
) -> Result<Option<ContentSource>> {
    let Some(source) = source else {
        return Ok(None);
    };
    match source.r#type {
        None => Err(Error::invalid(SOURCE, "names neither a snapshot nor a volume")),
        Some(Type::Snapshot(snapshot)) => {
            let id = source_id(&snapshot.snapshot_id)?.parse()?;
            Ok(Some(ContentSource::Snapshot(id)))
        }
        Some(Type::Volume(volume)) => {
            let id = source_id(&volume.volume_id)?.parse()?;
            Ok(Some(ContentSource::Volume(id)))
        }
    }
}

fn source_id(id: &str) -> Result<&str> {
    if id.is_empty() {
        return Err(Error::invalid(SOURCE, "has no id"));
    }
    check_length(SOURCE, id)?;
    Ok(id)
}
