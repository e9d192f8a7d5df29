//! csi.v1.GroupController: snapshots of several volumes at one instant.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlop_engine::request::CreateGroupSnapshot;
use orlop_model::{GroupSnapshotId, Result};
use tonic::Response;

use super::{note_group, note_name, unary_calls};
use crate::executor::{Executor, Subject};
use crate::proto::csi::v1;
use crate::proto::csi::v1::group_controller_service_capability::{self, Rpc, rpc};
use crate::{parse, reply};

pub(crate) struct GroupController {
    executor: Arc<Executor>,
}

impl GroupController {
    pub(crate) fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    async fn group_controller_get_capabilities(
        &self,
        _: v1::GroupControllerGetCapabilitiesRequest,
    ) -> Result<v1::GroupControllerGetCapabilitiesResponse> {
        let offered = Rpc { r#type: rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into() };
        Ok(v1::GroupControllerGetCapabilitiesResponse {
            capabilities: vec![v1::GroupControllerServiceCapability {
                r#type: Some(group_controller_service_capability::Type::Rpc(offered)),
            }],
        })
    }

    async fn create_volume_group_snapshot(
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
        let made =
            self.executor.run(home, move |engine| engine.create_group_snapshot(&wanted)).await?;
        note_group(&made.record.id);
        let topology = self.executor.topology_of(made.record.id.pool());
        let reply = v1::CreateVolumeGroupSnapshotResponse {
            group_snapshot: Some(reply::group_snapshot(&made, &topology)),
        };
        Ok(reply::with_group_consistency(reply, &made))
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: v1::DeleteVolumeGroupSnapshotRequest,
    ) -> Result<v1::DeleteVolumeGroupSnapshotResponse> {
        note_group(&request.group_snapshot_id);
        parse::require([("group_snapshot_id", !request.group_snapshot_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        // Before the list is checked: what was never a group has no members to name, and
        // csi-sanity names none (point 8 of docs/specification.md).
        if let Some(id) = parse::issued_group_snapshot(&request.group_snapshot_id)? {
            let members = required_members(request.snapshot_ids)?;
            let home = Subject::Pool(id.pool().clone());
            self.executor
                .run(home, move |engine| engine.delete_group_snapshot(&id, &members))
                .await?;
        }
        Ok(v1::DeleteVolumeGroupSnapshotResponse {})
    }

    async fn get_volume_group_snapshot(
        &self,
        request: v1::GetVolumeGroupSnapshotRequest,
    ) -> Result<v1::GetVolumeGroupSnapshotResponse> {
        note_group(&request.group_snapshot_id);
        parse::require([("group_snapshot_id", !request.group_snapshot_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        // As when it is deleted.
        let id: GroupSnapshotId = parse::group_snapshot_id(&request.group_snapshot_id)?;
        let members = required_members(request.snapshot_ids)?;
        let home = Subject::Pool(id.pool().clone());
        let group =
            self.executor.run(home, move |engine| engine.group_snapshot(&id, &members)).await?;
        let topology = self.executor.topology_of(group.record.id.pool());
        Ok(v1::GetVolumeGroupSnapshotResponse {
            group_snapshot: Some(reply::group_snapshot(&group, &topology)),
        })
    }
}

/// GG-34, GG-42. Only compared with the group's own, so not parsed.
fn required_members(ids: Vec<String>) -> Result<BTreeSet<String>> {
    parse::require([("snapshot_ids", !ids.is_empty())])?;
    Ok(ids.into_iter().collect())
}

unary_calls! {
    impl v1::group_controller_server::GroupController, for GroupController, with v1 {
        group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest)
            -> GroupControllerGetCapabilitiesResponse;
        delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest)
            -> DeleteVolumeGroupSnapshotResponse;
        get_volume_group_snapshot(GetVolumeGroupSnapshotRequest) -> GetVolumeGroupSnapshotResponse;
    } and metadata {
        create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest)
            -> CreateVolumeGroupSnapshotResponse;
    }
}
