//! Volume groups of CSI-Addons, in few words.

use orlop_csi::proto::volumegroup;
use tonic::transport::Channel;
use volumegroup::controller_client::ControllerClient;

use crate::client::{Answer, Client};

pub struct VolumeGroups(ControllerClient<Channel>);

impl VolumeGroups {
    pub fn of(client: &Client) -> Self {
        Self(ControllerClient::new(client.channel()))
    }

    pub async fn create(
        &mut self,
        name: &str,
        members: &[&str],
    ) -> Answer<volumegroup::VolumeGroup> {
        let request = volumegroup::CreateVolumeGroupRequest {
            name: name.to_owned(),
            volume_ids: members.iter().map(ToString::to_string).collect(),
            ..volumegroup::CreateVolumeGroupRequest::default()
        };
        let answer = self.0.create_volume_group(request).await?;
        Ok(answer.into_inner().volume_group.expect("a group in the answer"))
    }

    pub async fn modify(
        &mut self,
        group: &str,
        members: &[&str],
    ) -> Answer<volumegroup::VolumeGroup> {
        let request = volumegroup::ModifyVolumeGroupMembershipRequest {
            volume_group_id: group.to_owned(),
            volume_ids: members.iter().map(ToString::to_string).collect(),
            ..volumegroup::ModifyVolumeGroupMembershipRequest::default()
        };
        let answer = self.0.modify_volume_group_membership(request).await?;
        Ok(answer.into_inner().volume_group.expect("a group in the answer"))
    }

    pub async fn get(&mut self, group: &str) -> Answer<volumegroup::VolumeGroup> {
        let request = volumegroup::ControllerGetVolumeGroupRequest {
            volume_group_id: group.to_owned(),
            ..volumegroup::ControllerGetVolumeGroupRequest::default()
        };
        let answer = self.0.controller_get_volume_group(request).await?;
        Ok(answer.into_inner().volume_group.expect("a group in the answer"))
    }

    pub async fn delete(&mut self, group: &str) -> Answer<()> {
        let request = volumegroup::DeleteVolumeGroupRequest {
            volume_group_id: group.to_owned(),
            ..volumegroup::DeleteVolumeGroupRequest::default()
        };
        self.0.delete_volume_group(request).await.map(drop)
    }

    /// All of them, one at a time.
    pub async fn list(&mut self) -> Vec<volumegroup::VolumeGroup> {
        let mut groups = Vec::new();
        let mut starting_token = String::new();
        loop {
            let request = volumegroup::ListVolumeGroupsRequest {
                max_entries: 1,
                starting_token,
                ..volumegroup::ListVolumeGroupsRequest::default()
            };
            let page = self.0.list_volume_groups(request).await.expect("a page").into_inner();
            assert!(page.entries.len() <= 1);
            groups
                .extend(page.entries.into_iter().map(|entry| entry.volume_group.expect("a group")));
            if page.next_token.is_empty() {
                return groups;
            }
            starting_token = page.next_token;
        }
    }
}
