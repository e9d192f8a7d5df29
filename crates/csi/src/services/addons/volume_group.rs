//! volumegroup.Controller: volumes that are handled together.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_engine::request::{CreateVolumeGroup, VolumeGroup};
use orlop_model::{Error, Result};

use crate::executor::{Executor, Subject};
use crate::proto::volumegroup as wire;
use crate::proto::volumegroup::list_volume_groups_response::Entry;
use crate::services::{note_group, note_name, unary_calls};
use crate::{parse, reply};

/// If the parameters do not name a limit.
const DEFAULT_MAX_VOLUMES: u32 = 100;

pub(crate) struct VolumeGroups {
    executor: Arc<Executor>,
}

impl VolumeGroups {
    pub(crate) fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    async fn create_volume_group(
        &self,
        request: wire::CreateVolumeGroupRequest,
    ) -> Result<wire::CreateVolumeGroupResponse> {
        note_name("group_name", &request.name);
        parse::require([("name", !request.name.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        let max = parse::volume_group_parameters(&request.parameters)?;
        let wanted = CreateVolumeGroup {
            name: request.name.parse()?,
            max_members: max.unwrap_or(DEFAULT_MAX_VOLUMES),
            members: parse::volume_ids("volume_ids", &request.volume_ids)?,
        };
        let first = wanted.members.first().map(|id| id.pool().clone());
        let subject = first.map_or(Subject::Any, Subject::Pool);
        let made =
            self.executor.run(subject, move |engine| engine.create_volume_group(&wanted)).await?;
        note_group(&made.record.id);
        Ok(wire::CreateVolumeGroupResponse { volume_group: Some(message(&made)) })
    }

    async fn modify_volume_group_membership(
        &self,
        request: wire::ModifyVolumeGroupMembershipRequest,
    ) -> Result<wire::ModifyVolumeGroupMembershipResponse> {
        note_group(&request.volume_group_id);
        parse::require([("volume_group_id", !request.volume_group_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        let max = parse::volume_group_parameters(&request.parameters)?;
        let id = parse::volume_group_id(&request.volume_group_id)?;
        let members = parse::volume_ids("volume_ids", &request.volume_ids)?;
        let modified = self
            .executor
            .run(Subject::Pool(id.pool().clone()), move |engine| {
                // VG-32: a group's parameters may be repeated, but not changed.
                let group = engine.volume_group(&id)?;
                if max.is_some_and(|max| max != group.record.max_members) {
                    return Err(Error::invalid(
                        "parameters",
                        "maxVolumes of a group cannot be changed",
                    ));
                }
                engine.modify_volume_group(&id, &members)
            })
            .await?;
        Ok(wire::ModifyVolumeGroupMembershipResponse { volume_group: Some(message(&modified)) })
    }

    async fn delete_volume_group(
        &self,
        request: wire::DeleteVolumeGroupRequest,
    ) -> Result<wire::DeleteVolumeGroupResponse> {
        note_group(&request.volume_group_id);
        parse::require([("volume_group_id", !request.volume_group_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        if let Some(id) = parse::issued_volume_group(&request.volume_group_id)? {
            let home = Subject::Pool(id.pool().clone());
            self.executor.run(home, move |engine| engine.delete_volume_group(&id)).await?;
        }
        Ok(wire::DeleteVolumeGroupResponse {})
    }

    async fn controller_get_volume_group(
        &self,
        request: wire::ControllerGetVolumeGroupRequest,
    ) -> Result<wire::ControllerGetVolumeGroupResponse> {
        note_group(&request.volume_group_id);
        parse::require([("volume_group_id", !request.volume_group_id.is_empty())])?;
        parse::discard_secrets(request.secrets)?;
        let id = parse::volume_group_id(&request.volume_group_id)?;
        let home = Subject::Pool(id.pool().clone());
        let group = self.executor.run(home, move |engine| engine.volume_group(&id)).await?;
        Ok(wire::ControllerGetVolumeGroupResponse { volume_group: Some(message(&group)) })
    }

    async fn list_volume_groups(
        &self,
        request: wire::ListVolumeGroupsRequest,
    ) -> Result<wire::ListVolumeGroupsResponse> {
        let max = parse::max_entries(request.max_entries)?;
        parse::discard_secrets(request.secrets)?;
        let after = parse::page_token(&request.starting_token)?;
        let page = self
            .executor
            .run(Subject::Any, move |engine| engine.list_volume_groups(after.as_ref(), max))
            .await?;
        let entry = |group: &VolumeGroup| Entry { volume_group: Some(message(group)) };
        Ok(wire::ListVolumeGroupsResponse {
            entries: page.entries.iter().map(entry).collect(),
            next_token: page.next.map(String::from).unwrap_or_default(),
        })
    }
}

fn message(group: &VolumeGroup) -> wire::VolumeGroup {
    wire::VolumeGroup {
        volume_group_id: group.record.id.to_string(),
        // VG-09: an empty context never changes.
        volume_group_context: BTreeMap::new(),
        volumes: group.volumes.iter().map(reply::volume).collect(),
    }
}

unary_calls! {
    impl wire::controller_server::Controller, for VolumeGroups, with wire {
        create_volume_group(CreateVolumeGroupRequest) -> CreateVolumeGroupResponse;
        modify_volume_group_membership(ModifyVolumeGroupMembershipRequest)
            -> ModifyVolumeGroupMembershipResponse;
        delete_volume_group(DeleteVolumeGroupRequest) -> DeleteVolumeGroupResponse;
        list_volume_groups(ListVolumeGroupsRequest) -> ListVolumeGroupsResponse;
        controller_get_volume_group(ControllerGetVolumeGroupRequest)
            -> ControllerGetVolumeGroupResponse;
    }
}
