//! Volume groups of CSI-Addons that checks start from.

use std::collections::BTreeSet;

use super::CheckContext;
use crate::check::Outcome;
use crate::options::Pairs;
use crate::wire::csi::v1::Volume;
use crate::wire::volumegroup::{
    ControllerGetVolumeGroupRequest, CreateVolumeGroupRequest, DeleteVolumeGroupRequest,
    ListVolumeGroupsRequest, ModifyVolumeGroupMembershipRequest, VolumeGroup,
};

fn ids(volumes: &[&Volume]) -> Vec<String> {
    volumes.iter().map(|volume| volume.volume_id.clone()).collect()
}

impl CheckContext {
    pub fn new_group(&self, volumes: &[&Volume]) -> CreateVolumeGroupRequest {
        CreateVolumeGroupRequest {
            name: self.name("group"),
            parameters: self.options().group_parameters.clone(),
            secrets: self.secrets(),
            volume_ids: ids(volumes),
        }
    }

    /// A group of volumes that are there before it, so that it is gone before them.
    pub async fn group(&self, volumes: &[&Volume]) -> Outcome<VolumeGroup> {
        self.create_group(self.new_group(volumes)).await
    }

    pub async fn create_group(&self, request: CreateVolumeGroupRequest) -> Outcome<VolumeGroup> {
        let reply = self.ok(request).await?;
        self.some(reply.volume_group, "a volume_group in the reply")
    }

    pub fn modify_group(
        &self,
        group: &VolumeGroup,
        volumes: &[&Volume],
    ) -> ModifyVolumeGroupMembershipRequest {
        ModifyVolumeGroupMembershipRequest {
            volume_group_id: group.volume_group_id.clone(),
            volume_ids: ids(volumes),
            secrets: self.secrets(),
            parameters: Pairs::new(),
        }
    }

    pub async fn regrouped(
        &self,
        group: &VolumeGroup,
        volumes: &[&Volume],
    ) -> Outcome<VolumeGroup> {
        let reply = self.ok(self.modify_group(group, volumes)).await?;
        self.some(reply.volume_group, "a volume_group in the reply")
    }

    pub fn get_group(&self, group: &VolumeGroup) -> ControllerGetVolumeGroupRequest {
        let volume_group_id = group.volume_group_id.clone();
        ControllerGetVolumeGroupRequest { volume_group_id, secrets: self.secrets() }
    }

    pub async fn found_group(&self, group: &VolumeGroup) -> Outcome<VolumeGroup> {
        let reply = self.ok(self.get_group(group)).await?;
        self.some(reply.volume_group, "a volume_group in the reply")
    }

    pub fn delete_group(&self, group: &VolumeGroup) -> DeleteVolumeGroupRequest {
        let volume_group_id = group.volume_group_id.clone();
        DeleteVolumeGroupRequest { volume_group_id, secrets: self.secrets() }
    }

    pub fn list_groups(&self, max_entries: i32, starting_token: &str) -> ListVolumeGroupsRequest {
        let starting_token = starting_token.to_owned();
        ListVolumeGroupsRequest { max_entries, starting_token, secrets: self.secrets() }
    }

    /// The group holds exactly these, whatever their order.
    pub fn expect_members(&self, group: &VolumeGroup, volumes: &[&Volume]) -> Outcome {
        let found: Vec<_> = group.volumes.iter().map(|it| it.volume_id.as_str()).collect();
        let wanted: BTreeSet<_> = volumes.iter().map(|it| it.volume_id.as_str()).collect();
        let is_so =
            found.len() == wanted.len() && found.into_iter().collect::<BTreeSet<_>>() == wanted;
        self.expect(is_so, format!("exactly these volumes in the group: {wanted:?}"))
    }
}
