//! Capabilities, volumes and calls in forms that several chapters want.

use std::future::Future;

use tonic::Code;

use super::Trial;
use crate::capability::{block, in_mode};
use crate::check::Outcome;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{CreateVolumeRequest, Topology, Volume, VolumeCapability};

impl Trial {
    /// A device where the options allow one, as it takes no time to format.
    pub fn plain_capability(&self) -> VolumeCapability {
        if self.options().access.block() {
            block(Mode::SingleNodeWriter)
        } else {
            self.capability()
        }
    }

    /// A volume for this mode; a plugin that does not know the mode is not asked further.
    pub async fn volume_in_mode(&self, mode: Mode) -> Outcome<(Volume, VolumeCapability)> {
        let capability = in_mode(&self.plain_capability(), mode);
        let request = self.new_volume_for(capability.clone());
        match self.settled(request).await? {
            Ok(reply) => Ok((self.some(reply.volume, "a volume in the reply")?, capability)),
            Err(status) if status.code() == Code::InvalidArgument => {
                self.not_applicable(format!("no volumes are made for {}", mode.as_str_name()))
            }
            Err(_) => Err(self.failed("OK, or INVALID_ARGUMENT if the mode is not supported")),
        }
    }

    /// As [`Trial::expect`], where a check proves several rows and this is about one of them.
    pub fn expect_row(
        &self,
        row: &'static str,
        holds: bool,
        expected: impl Into<String>,
    ) -> Outcome {
        if holds { Ok(()) } else { Err(self.failed_row(Some(row), expected)) }
    }

    /// What comes of calls while the storage is away; it is back when this returns.
    pub async fn while_broken<T>(&self, calls: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        self.break_storage()?;
        let outcome = calls.await;
        self.mend_storage()?;
        outcome
    }

    /// Where this node is.
    pub fn here(&self) -> Outcome<Topology> {
        match &self.offers().node_info.accessible_topology {
            Some(place) if !place.segments.is_empty() => Ok(place.clone()),
            Some(_) | None => self.not_applicable("the node does not say where it is"),
        }
    }

    pub fn new_volume_at(
        &self,
        requisite: &[&Topology],
        preferred: &[&Topology],
    ) -> CreateVolumeRequest {
        use crate::wire::csi::v1::TopologyRequirement;
        let owned = |places: &[&Topology]| places.iter().map(|it| (*it).clone()).collect();
        let requirement =
            TopologyRequirement { requisite: owned(requisite), preferred: owned(preferred) };
        CreateVolumeRequest { accessibility_requirements: Some(requirement), ..self.new_volume() }
    }
}
