//! How volumes and snapshots are listed, and whether they are there.

use super::Trial;
use crate::check::Outcome;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v1::list_volumes_response::Entry;
use crate::wire::csi::v1::{
    ListSnapshotsRequest, Snapshot, ValidateVolumeCapabilitiesRequest, Volume,
};

impl Trial {
    pub fn lists_volumes(&self) -> bool {
        self.offers().has_controller(ControllerRpc::ListVolumes)
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
