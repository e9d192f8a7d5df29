//! Where a volume is made, and what it starts with.

use orlop_model::{ContentSource, Error, Result, Topology, TopologyRequirement};

use super::fields::{check_length, check_map_size};
use crate::proto::csi::v1;
use crate::proto::csi::v1::volume_content_source::Type;

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

const SOURCE: &str = "volume_content_source";

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
