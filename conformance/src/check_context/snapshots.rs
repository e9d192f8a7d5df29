//! Snapshots and groups of them: requests, and looks at what is there.

use std::collections::BTreeSet;

use super::CheckContext;
use crate::check::Outcome;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v1::volume_content_source::{SnapshotSource, Type};
use crate::wire::csi::v1::{
    CreateVolumeRequest, DeleteSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
    GetSnapshotRequest, GetVolumeGroupSnapshotRequest, ListSnapshotsRequest, Snapshot, Volume,
    VolumeCapability, VolumeGroupSnapshot,
};

impl CheckContext {
    pub fn delete_snapshot(&self, snapshot: &Snapshot) -> DeleteSnapshotRequest {
        let snapshot_id = snapshot.snapshot_id.clone();
        DeleteSnapshotRequest { snapshot_id, secrets: self.secrets() }
    }

    pub fn get_snapshot(&self, snapshot: &Snapshot) -> GetSnapshotRequest {
        let snapshot_id = snapshot.snapshot_id.clone();
        GetSnapshotRequest { snapshot_id, secrets: self.secrets() }
    }

    /// Without any filter.
    pub fn list_snapshots(&self) -> ListSnapshotsRequest {
        ListSnapshotsRequest { secrets: self.secrets(), ..ListSnapshotsRequest::default() }
    }

    pub fn list_snapshots_of(&self, volume: &Volume) -> ListSnapshotsRequest {
        let source_volume_id = volume.volume_id.clone();
        ListSnapshotsRequest { source_volume_id, ..self.list_snapshots() }
    }

    pub fn list_snapshot(&self, snapshot: &Snapshot) -> ListSnapshotsRequest {
        let snapshot_id = snapshot.snapshot_id.clone();
        ListSnapshotsRequest { snapshot_id, ..self.list_snapshots() }
    }

    pub fn lists_snapshots(&self) -> bool {
        self.features().has_controller(ControllerRpc::ListSnapshots)
    }

    /// Of all pages, as the plugin cuts them.
    pub async fn listed_snapshots(
        &self,
        mut request: ListSnapshotsRequest,
    ) -> Outcome<Vec<Snapshot>> {
        let mut listed = Vec::new();
        let mut tokens = BTreeSet::new();
        loop {
            let page = self.ok(request.clone()).await?;
            listed.extend(page.entries.into_iter().filter_map(|entry| entry.snapshot));
            if page.next_token.is_empty() {
                return Ok(listed);
            }
            let leads_on = tokens.insert(page.next_token.clone());
            self.expect(leads_on, "a token that was not there before")?;
            request.starting_token = page.next_token;
        }
    }

    /// How the list shows the snapshot; `None`: there is no list, or it is not in it.
    pub async fn snapshot_listed_as(&self, snapshot: &Snapshot) -> Outcome<Option<Snapshot>> {
        if !self.lists_snapshots() {
            return Ok(None);
        }
        let listed = self.listed_snapshots(self.list_snapshot(snapshot)).await?;
        Ok(listed.into_iter().next())
    }

    pub fn restore(
        &self,
        snapshot: &Snapshot,
        capability: VolumeCapability,
    ) -> CreateVolumeRequest {
        let snapshot_id = snapshot.snapshot_id.clone();
        self.new_copy(Type::Snapshot(SnapshotSource { snapshot_id }), capability)
    }

    /// By whatever call the plugin has for it; that it can be restored shows it in any case.
    pub async fn snapshot_exists(&self, snapshot: &Snapshot) -> Outcome<bool> {
        if self.lists_snapshots() {
            return Ok(self.snapshot_listed_as(snapshot).await?.is_some());
        }
        self.is_found(self.restore(snapshot, self.capability())).await
    }

    pub fn get_group_snapshot(&self, group: &VolumeGroupSnapshot) -> GetVolumeGroupSnapshotRequest {
        GetVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id.clone(),
            snapshot_ids: member_ids(group),
            secrets: self.secrets(),
        }
    }

    pub fn delete_group_snapshot(
        &self,
        group: &VolumeGroupSnapshot,
    ) -> DeleteVolumeGroupSnapshotRequest {
        DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id.clone(),
            snapshot_ids: member_ids(group),
            secrets: self.secrets(),
        }
    }

    pub async fn group_snapshot_exists(&self, group: &VolumeGroupSnapshot) -> Outcome<bool> {
        self.is_found(self.get_group_snapshot(group)).await
    }
}

pub(crate) fn member_ids(group: &VolumeGroupSnapshot) -> Vec<String> {
    group.snapshots.iter().map(|member| member.snapshot_id.clone()).collect()
}
