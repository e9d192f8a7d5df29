//! What the plugin says of its volumes, its room and itself while its storage is away.

use prost::Message;

use super::{Answer, Trial};
use crate::check::Outcome;
use crate::options::Pairs;
use crate::wire::Rpc;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{GetVolume, ListVolumes};
use crate::wire::csi::v1::list_volumes_response::Entry;
use crate::wire::csi::v1::{
    ControllerGetVolumeRequest, GetCapacityRequest, GetCapacityResponse, ListVolumesRequest,
    Topology, Volume,
};

/// A list that has not ended by then goes round in circles.
const MOST_PAGES: usize = 10_000;

/// What is known of a volume besides what it is.
#[derive(Debug, Clone)]
pub struct Known {
    pub volume: Volume,
    pub published_node_ids: Vec<String>,
}

impl Trial {
    /// As [`Trial::ask`], for rules that [`crate::audit`] also looks at, so that the one who
    /// asks can say which row it is about.
    pub async fn ask_unaudited<R: Rpc>(&self, request: R) -> Outcome<Answer<R::Reply>> {
        let answer = self.ask_bytes::<R>(request.encode_to_vec()).await?;
        Ok(match answer {
            Ok(bytes) => {
                let reply = R::Reply::decode(bytes);
                Ok(reply.map_err(|_| self.failed(format!("a reply that is a {}", R::REPLY)))?)
            }
            Err(status) => Err(status),
        })
    }

    /// What is answered while the storage is away, which is brought back before anyone judges.
    pub async fn ask_while_broken<R: Rpc>(&self, request: R) -> Outcome<Answer<R::Reply>> {
        self.break_storage()?;
        let answer = self.ask(request).await;
        self.mend_storage()?;
        answer
    }

    /// All entries, read in pages of at most so many.
    pub async fn listed(&self, max_entries: i32) -> Outcome<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut starting_token = String::new();
        for _ in 0..MOST_PAGES {
            let page = self.ok(ListVolumesRequest { max_entries, starting_token }).await?;
            entries.extend(page.entries);
            if page.next_token.is_empty() {
                return Ok(entries);
            }
            starting_token = page.next_token;
        }
        Err(self.failed(format!("the list to end within {MOST_PAGES} pages")))
    }

    /// What the plugin knows of a volume now, by whichever call it has for that.
    pub async fn known(&self, volume: &Volume) -> Outcome<Known> {
        let volume_id = volume.volume_id.clone();
        if self.offers().has_controller(GetVolume) {
            let reply = self.ok(ControllerGetVolumeRequest { volume_id }).await?;
            let volume = self.some(reply.volume, "the volume")?;
            let published_node_ids = reply.status.unwrap_or_default().published_node_ids;
            return Ok(Known { volume, published_node_ids });
        }
        if !self.offers().has_controller(ListVolumes) {
            return self.not_applicable("neither GET_VOLUME nor LIST_VOLUMES is offered");
        }
        let is_it = |entry: &Entry| {
            entry.volume.as_ref().is_some_and(|volume| volume.volume_id == volume_id)
        };
        let entry = self.listed(0).await?.into_iter().find(is_it);
        let entry = self.some(entry, "the volume to be listed")?;
        let volume = self.some(entry.volume, "the volume")?;
        let published_node_ids = entry.status.unwrap_or_default().published_node_ids;
        Ok(Known { volume, published_node_ids })
    }

    pub async fn capacity(&self, parameters: &Pairs) -> Outcome<GetCapacityResponse> {
        let parameters = parameters.clone();
        self.ok(GetCapacityRequest { parameters, ..GetCapacityRequest::default() }).await
    }

    /// A well-formed place that is of the same kind as the node's and is nowhere.
    pub fn nowhere(&self) -> Option<Topology> {
        let mut place = self.offers().node_info.accessible_topology.clone()?;
        place.segments.values_mut().for_each(|value| "nowhere-at-all".clone_into(value));
        (!place.segments.is_empty()).then_some(place)
    }
}
