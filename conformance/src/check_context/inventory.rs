//! What the plugin says of the volumes that it has, and of the room for more.

use super::CheckContext;
use crate::check::Outcome;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v1::list_volumes_response::Entry;
use crate::wire::csi::v1::{
    ControllerGetVolumeRequest, GetCapacityRequest, GetCapacityResponse, ListVolumesRequest,
    ValidateVolumeCapabilitiesRequest, Volume,
};

/// A list that has not ended by then goes round in circles.
const MAX_PAGES: usize = 10_000;

/// A volume, and the nodes that it is published to.
#[derive(Debug, Clone)]
pub struct KnownVolume {
    pub volume: Volume,
    pub published_node_ids: Vec<String>,
}

impl CheckContext {
    pub fn lists_volumes(&self) -> bool {
        self.features().has_controller(ControllerRpc::ListVolumes)
    }

    /// All entries, read in pages of at most so many.
    pub async fn listed(&self, max_entries: i32) -> Outcome<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut starting_token = String::new();
        for _ in 0..MAX_PAGES {
            let page = self.ok(ListVolumesRequest { max_entries, starting_token }).await?;
            entries.extend(page.entries);
            if page.next_token.is_empty() {
                return Ok(entries);
            }
            starting_token = page.next_token;
        }
        Err(self.failed(format!("the list to end within {MAX_PAGES} pages")))
    }

    /// How the list shows the volume; `None`: there is no list, or it is not in it.
    pub async fn listed_as(&self, volume: &Volume) -> Outcome<Option<Entry>> {
        if !self.lists_volumes() {
            return Ok(None);
        }
        let is_it = |entry: &Entry| {
            entry.volume.as_ref().is_some_and(|it| it.volume_id == volume.volume_id)
        };
        Ok(self.listed(0).await?.into_iter().find(is_it))
    }

    /// What the plugin knows of a volume now, by whichever call it has for that.
    pub async fn known(&self, volume: &Volume) -> Outcome<KnownVolume> {
        if self.features().has_controller(ControllerRpc::GetVolume) {
            let volume_id = volume.volume_id.clone();
            let reply = self.ok(ControllerGetVolumeRequest { volume_id }).await?;
            let volume = self.some(reply.volume, "the volume")?;
            let published_node_ids = reply.status.unwrap_or_default().published_node_ids;
            return Ok(KnownVolume { volume, published_node_ids });
        }
        if !self.lists_volumes() {
            return self.not_applicable("neither GET_VOLUME nor LIST_VOLUMES is offered");
        }
        let entry = self.some(self.listed_as(volume).await?, "the volume to be listed")?;
        let volume = self.some(entry.volume, "the volume")?;
        let published_node_ids = entry.status.unwrap_or_default().published_node_ids;
        Ok(KnownVolume { volume, published_node_ids })
    }

    pub fn validate(&self, volume: &Volume) -> ValidateVolumeCapabilitiesRequest {
        ValidateVolumeCapabilitiesRequest {
            volume_id: volume.volume_id.clone(),
            volume_context: volume.volume_context.clone(),
            volume_capabilities: vec![self.capability()],
            secrets: self.secrets(),
            ..ValidateVolumeCapabilitiesRequest::default()
        }
    }

    /// Every controller has ValidateVolumeCapabilities, so it tells whether a volume is there.
    pub async fn volume_exists(&self, volume: &Volume) -> Outcome<bool> {
        self.is_found(self.validate(volume)).await
    }

    pub async fn capacity(&self, parameters: &Pairs) -> Outcome<GetCapacityResponse> {
        let parameters = parameters.clone();
        self.ok(GetCapacityRequest { parameters, ..GetCapacityRequest::default() }).await
    }
}
