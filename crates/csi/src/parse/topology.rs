//! Where a caller wants a volume, or asks for capacity.

use orlop_model::{Error, Result, Topology, TopologyRequirement};

use super::fields::check_map_size;
use crate::proto::csi::v1;

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
