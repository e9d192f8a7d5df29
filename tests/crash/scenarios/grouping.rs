//! Volume groups of CSI-Addons.

use orlop_tests::volumegroup::controller_client::ControllerClient;
use orlop_tests::{Answer, Code, MIB, expect_code, volumegroup};

use crate::walk::{Scenario, Stroll};
use crate::world::{World, settled};

pub(crate) async fn all(stroll: &mut impl Stroll) {
    stroll.walk(&Change::Create).await;
    stroll.walk(&Change::Empty).await;
    stroll.walk(&Change::Delete).await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Out of two volumes.
    Create,
    Empty,
    /// A group that is empty.
    Delete,
}

pub(crate) struct Grouped {
    volumes: Vec<String>,
    name: String,
    /// The id that the group has, or is going to have.
    id: String,
}

fn groups(world: &World) -> ControllerClient<tonic::transport::Channel> {
    ControllerClient::new(world.client().channel())
}

impl Grouped {
    async fn create(&self, world: &World, volumes: &[String]) -> Answer<volumegroup::VolumeGroup> {
        let request = volumegroup::CreateVolumeGroupRequest {
            name: self.name.clone(),
            volume_ids: volumes.to_vec(),
            ..Default::default()
        };
        let answer = groups(world).create_volume_group(request).await?;
        Ok(answer.into_inner().volume_group.expect("a group in the answer"))
    }

    async fn change(&self, world: &World, volumes: &[String]) -> Answer<()> {
        let request = volumegroup::ModifyVolumeGroupMembershipRequest {
            volume_group_id: self.id.clone(),
            volume_ids: volumes.to_vec(),
            ..Default::default()
        };
        groups(world).modify_volume_group_membership(request).await.map(drop)
    }

    async fn delete(&self, world: &World) -> Answer<()> {
        let request = volumegroup::DeleteVolumeGroupRequest {
            volume_group_id: self.id.clone(),
            ..Default::default()
        };
        groups(world).delete_volume_group(request).await.map(drop)
    }

    /// How many volumes it has.
    async fn size(&self, world: &World) -> Answer<usize> {
        let request = volumegroup::ControllerGetVolumeGroupRequest {
            volume_group_id: self.id.clone(),
            ..Default::default()
        };
        let answer = groups(world).controller_get_volume_group(request).await?;
        Ok(answer.into_inner().volume_group.map_or(0, |group| group.volumes.len()))
    }

    async fn ensure_gone(&self, world: &World) {
        if self.size(world).await.is_ok() {
            settled("empty", || self.change(world, &[])).await;
        }
        settled("delete", || self.delete(world)).await;
    }
}

impl Scenario for Change {
    type State = Grouped;

    fn name(&self) -> &'static str {
        match self {
            Self::Create => "create-volume-group",
            Self::Empty => "empty-volume-group",
            Self::Delete => "delete-volume-group",
        }
    }

    fn rpc(&self) -> &'static str {
        match self {
            Self::Create => "volumegroup.Controller/CreateVolumeGroup",
            Self::Empty => "volumegroup.Controller/ModifyVolumeGroupMembership",
            Self::Delete => "volumegroup.Controller/DeleteVolumeGroup",
        }
    }

    async fn prepare(&self, world: &World, tag: &str) -> Grouped {
        let mut volumes = Vec::new();
        for letter in ["a", "b"] {
            let create = world.client().create(&format!("{tag}-{letter}")).size(32 * MIB).block();
            volumes.push(create.done().await.volume_id);
        }
        let mut grouped = Grouped { volumes, name: tag.to_owned(), id: String::new() };
        let group = grouped.create(world, &grouped.volumes).await.expect("a group");
        grouped.id = group.volume_group_id;
        self.take_back(world, &grouped).await;
        grouped
    }

    async fn call(&self, world: &World, grouped: &Grouped) -> Answer<()> {
        match self {
            Self::Create => grouped.create(world, &grouped.volumes).await.map(drop),
            Self::Empty => grouped.change(world, &[]).await,
            Self::Delete => grouped.delete(world).await,
        }
    }

    async fn holds(&self, world: &World, grouped: &Grouped) {
        let size = grouped.size(world).await;
        match self {
            Self::Create => {
                assert_eq!(size.expect("a group"), 2);
                let member = world.client().delete(&grouped.volumes[0]).await;
                expect_code(member, Code::FailedPrecondition);
            }
            Self::Empty => assert_eq!(size.expect("a group"), 0),
            Self::Delete => drop(expect_code(size, Code::NotFound)),
        }
    }

    async fn take_back(&self, world: &World, grouped: &Grouped) {
        match self {
            Self::Create => grouped.ensure_gone(world).await,
            Self::Empty => settled("fill", || grouped.change(world, &grouped.volumes)).await,
            Self::Delete => {
                grouped.ensure_gone(world).await;
                settled("create", || grouped.create(world, &[])).await;
            }
        }
    }

    async fn clear(&self, world: &World, grouped: Grouped) {
        grouped.ensure_gone(world).await;
        for volume in &grouped.volumes {
            world.client().delete(volume).await.expect("delete");
        }
    }
}
