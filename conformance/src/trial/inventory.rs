//! All that a plugin says it has.

use super::Trial;
use crate::check::Outcome;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v1::list_volumes_response::Entry;
use crate::wire::csi::v1::{
    ListSnapshotsRequest, ListVolumesRequest, Snapshot, ValidateVolumeCapabilitiesRequest, Volume,
};

/// A plugin that never stops listing is not listened to forever.
const MOST_PAGES: usize = 1000;

impl Trial {
    pub fn lists_volumes(&self) -> bool {
        self.offers().has_controller(ControllerRpc::ListVolumes)
    }

    /// Page by page to the end.
    pub async fn listed(&self) -> Outcome<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut request = ListVolumesRequest::default();
        for _ in 0..MOST_PAGES {
            let page = self.ok(request).await?;
            entries.extend(page.entries);
            if page.next_token.is_empty() {
                return Ok(entries);
            }
            request = ListVolumesRequest { starting_token: page.next_token, ..Default::default() };
        }
        Err(self.failed("a list of volumes that comes to an end"))
    }

    /// How the list shows the volume; `None`: there is no list, or it is not in it.
    pub async fn listed_as(&self, volume: &Volume) -> Outcome<Option<Entry>> {
        if !self.lists_volumes() {
            return Ok(None);
        }
        let is_it = |entry: &Entry| {
            entry.volume.as_ref().is_some_and(|it| it.volume_id == volume.volume_id)
        };
        Ok(self.listed().await?.into_iter().find(is_it))
    }

    /// How the list shows the snapshot, if there is a list.
    pub async fn snapshot_listed_as(&self, snapshot: &Snapshot) -> Outcome<Option<Snapshot>> {
        if !self.offers().has_controller(ControllerRpc::ListSnapshots) {
            return Ok(None);
        }
        let request = ListSnapshotsRequest {
            snapshot_id: snapshot.snapshot_id.clone(),
            secrets: self.secrets(),
            ..Default::default()
        };
        let page = self.ok(request).await?;
        Ok(page.entries.into_iter().next().and_then(|entry| entry.snapshot))
    }

    /// Every controller has this call, so it tells whether a volume is there.
    pub fn validate(&self, volume: &Volume) -> ValidateVolumeCapabilitiesRequest {
        ValidateVolumeCapabilitiesRequest {
            volume_id: volume.volume_id.clone(),
            volume_capabilities: vec![self.capability()],
            secrets: self.secrets(),
            ..Default::default()
        }
    }
}
