//! Where volumes can be reached, and where nothing is.

use super::CheckContext;
use crate::check::Outcome;
use crate::wire::csi::v1::{CreateVolumeRequest, Topology, TopologyRequirement};

impl CheckContext {
    /// Where this node is.
    pub fn here(&self) -> Outcome<Topology> {
        match &self.features().node_info.accessible_topology {
            Some(place) if !place.segments.is_empty() => Ok(place.clone()),
            Some(_) | None => self.not_applicable("the node does not say where it is"),
        }
    }

    /// A well-formed place that is of the same kind as the node's and is nowhere.
    pub fn nowhere(&self) -> Outcome<Topology> {
        let mut place = self.here()?;
        place.segments.values_mut().for_each(|value| "nowhere-at-all".clone_into(value));
        Ok(place)
    }

    pub fn new_volume_at(
        &self,
        requisite: &[&Topology],
        preferred: &[&Topology],
    ) -> CreateVolumeRequest {
        let owned = |places: &[&Topology]| places.iter().map(|it| (*it).clone()).collect();
        let requirement =
            TopologyRequirement { requisite: owned(requisite), preferred: owned(preferred) };
        CreateVolumeRequest { accessibility_requirements: Some(requirement), ..self.new_volume() }
    }
}
