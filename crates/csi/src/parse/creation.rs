//! What is to be made: its parameters, where it goes, and what it starts with.

use std::collections::BTreeMap;

use orlop_model::parameters::is_foreign_key;
use orlop_model::{
    ContentSource, Error, IoLimitsChange, Result, Topology, TopologyRequirement, VolumeParameters,
};

use super::{about, check_length, check_map_size};
use crate::features::Features;
use crate::proto::csi::v1;
use crate::proto::csi::v1::volume_content_source::Type;

const SOURCE: &str = "volume_content_source";

const MAX_VOLUMES_KEY: &str = "maxVolumes";

/// As many as a node has by default.
const LARGEST_GROUP: u32 = 1000;

const NO_LIMITS: &str = "asks for I/O limits, which cannot be set here";

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

/// Of GetCapacity. Where a parameter makes no sense there is room all the same: an orchestrator that
/// sees none takes the storage for full, and never sends the CreateVolume that would say what is wrong.
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
    let mut most = None;
    for (key, value) in parameters.iter().filter(|(key, _)| !is_foreign_key(key)) {
        if key != MAX_VOLUMES_KEY {
            return Err(unknown(key, "a volume group; the only one is maxVolumes"));
        }
        most = Some(parse_max_volumes(value)?);
    }
    Ok(most)
}

fn parse_max_volumes(text: &str) -> Result<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(most) if is_number && (1..=LARGEST_GROUP).contains(&most) => Ok(most),
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
pub(crate) fn place(field: &'static str, topology: v1::Topology) -> Result<Topology> {
    check_map_size(field, &topology.segments)?;
    Topology::parse(topology.segments).map_err(|reason| Error::invalid(field, reason))
}

/// TP-09, TP-18.
pub(crate) fn topology_requirement(
    requirement: Option<v1::TopologyRequirement>,
) -> Result<Option<TopologyRequirement>> {
    let Some(requirement) = requirement else {
        return Ok(None);
    };
    let places = |topologies: Vec<v1::Topology>| -> Result<Vec<Topology>> {
        topologies
            .into_iter()
            .map(|topology| place("accessibility_requirements", topology))
            .collect()
    };
    let requisite = places(requirement.requisite)?;
    let preferred = places(requirement.preferred)?;
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
            let id = given(&snapshot.snapshot_id)?.parse()?;
            Ok(Some(ContentSource::Snapshot(id)))
        }
        Some(Type::Volume(volume)) => {
            let id = given(&volume.volume_id)?.parse()?;
            Ok(Some(ContentSource::Volume(id)))
        }
    }
}

fn given(id: &str) -> Result<&str> {
    if id.is_empty() {
        return Err(Error::invalid(SOURCE, "has no id"));
    }
    check_length(SOURCE, id)?;
    Ok(id)
}
