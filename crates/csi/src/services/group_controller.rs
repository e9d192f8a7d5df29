//! csi.v1.GroupController: snapshots of several volumes at one instant.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlop_engine::request::CreateGroupSnapshot;
use orlop_model::{GroupSnapshotId, Result};
use tonic::{Request, Response};

use super::{Answer, answer, answer_whole, note_group, note_name};
use crate::dispatch::{Core, Subject};
use crate::proto::csi::v1;
use crate::proto::csi::v1::group_controller_service_capability::{self, Rpc, rpc};
use crate::{parse, reply};

pub(crate) struct GroupController {
    core: Arc<Core>,
}

impl GroupController {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    async fn create(
        &self,
        request: v1::CreateVolumeGroupSnapshotRequest,
    ) -> Result<Response<v1::CreateVolumeGroupSnapshotResponse>> {
        note_name("group_name", &request.name);
        parse::require([
            ("name", !request.name.is_empty()),
            ("source_volume_ids", !request.source_volume_ids.is_empty()),
        ])?;
        parse::discard_secrets(request.secrets)?;
        parse::check_snapshot_parameters(&request.parameters)?;
        let wanted = CreateGroupSnapshot {
            name: request.name.parse()?,
            sources: parse::volume_ids("source_volume_ids", &request.source_volume_ids)?,
        };
        let first = wanted.sources.first().map(|id| id.pool().clone());
        let home = first.map_or(Subject::Any, Subject::Pool);
        let made = self.core.run(home, move |engine| engine.create_group_snapshot(&wanted)).await?;
        note_group(&made.record.id);
        let reply = v1::CreateVolumeGroupSnapshotResponse {
            group_snapshot: Some(reply::group_snapshot(&made)),
        };
        Ok(reply::with_group_consistency(reply, &made))
    }

    async fn delete(
        &self,
        request: v1::DeleteVolumeGroupSnapshotRequest,
    ) -> Result<v1::DeleteVolumeGroupSnapshotResponse> {
        note_group(&request.group_snapshot_id);
        parse::require([("group_snapshot_id", !request.group_snapshot_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        // Before the list is looked at: what was never a group has no members to name, and
        // csi-sanity names none (open point 8).
        if let Some(id) = parse::issued_group_snapshot(&request.group_snapshot_id)? {
            let members = required_members(request.snapshot_ids)?;
            let home = Subject::Pool(id.pool().clone());
            self.core.run(home, move |engine| engine.delete_group_snapshot(&id, &members)).await?;
        }
        Ok(v1::DeleteVolumeGroupSnapshotResponse {})
    }

    async fn get(
        &self,
        request: v1::GetVolumeGroupSnapshotRequest,
    ) -> Result<v1::GetVolumeGroupSnapshotResponse> {
        note_group(&request.group_snapshot_id);
        parse::require([("group_snapshot_id", !request.group_snapshot_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        // As in `delete`.
        let id: GroupSnapshotId = parse::group_snapshot_id(&request.group_snapshot_id)?;
        let members = required_members(request.snapshot_ids)?;
        let home = Subject::Pool(id.pool().clone());
        let group = self.core.run(home, move |engine| engine.group_snapshot(&id, &members)).await?;
        Ok(v1::GetVolumeGroupSnapshotResponse {
            group_snapshot: Some(reply::group_snapshot(&group)),
        })
    }
}

/// GG-34, GG-42. Only compared with the group's own, so not parsed.
fn required_members(ids: Vec<String>) -> Result<BTreeSet<String>> {
    parse::require([("snapshot_ids", !ids.is_empty())])?;
    Ok(ids.into_iter().collect())
}

fn capabilities() -> v1::GroupControllerGetCapabilitiesResponse {
    let offered = Rpc { r#type: rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into() };
    v1::GroupControllerGetCapabilitiesResponse {
        capabilities: vec![v1::GroupControllerServiceCapability {
            r#type: Some(group_controller_service_capability::Type::Rpc(offered)),
        }],
    }
}

#[tonic::async_trait]
impl v1::group_controller_server::GroupController for GroupController {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<v1::GroupControllerGetCapabilitiesRequest>,
    ) -> Answer<v1::GroupControllerGetCapabilitiesResponse> {
        answer(Ok(capabilities()))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<v1::CreateVolumeGroupSnapshotRequest>,
    ) -> Answer<v1::CreateVolumeGroupSnapshotResponse> {
        answer_whole(self.create(request.into_inner()).await)
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<v1::DeleteVolumeGroupSnapshotRequest>,
    ) -> Answer<v1::DeleteVolumeGroupSnapshotResponse> {
        answer(self.delete(request.into_inner()).await)
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<v1::GetVolumeGroupSnapshotRequest>,
    ) -> Answer<v1::GetVolumeGroupSnapshotResponse> {
        answer(self.get(request.into_inner()).await)
    }
}
