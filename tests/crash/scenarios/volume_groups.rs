//! Volume groups of CSI-Addons.

use orlop_tests::volumegroup::controller_client::ControllerClient;
use orlop_tests::{Answer, Code, MIB, expect_code, volumegroup};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, settled};

pub(crate) async fn all(runner: &mut impl ScenarioRunner) {
    runner.run(&Change::Create).await;
    runner.run(&Change::Empty).await;
    runner.run(&Change::Delete).await;
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

fn groups(fixture: &Fixture) -> ControllerClient<tonic::transport::Channel> {
    ControllerClient::new(fixture.client().channel())
}

impl Grouped {
    async fn create(
        &self,
        fixture: &Fixture,
        volumes: &[String],
    ) -> Answer<volumegroup::VolumeGroup> {
        let request = volumegroup::CreateVolumeGroupRequest {
            name: self.name.clone(),
            volume_ids: volumes.to_vec(),
            ..Default::default()
        };
        let answer = groups(fixture).create_volume_group(request).await?;
        Ok(answer.into_inner().volume_group.expect("a group in the answer"))
    }

    async fn change(&self, fixture: &Fixture, volumes: &[String]) -> Answer<()> {
        let request = volumegroup::ModifyVolumeGroupMembershipRequest {
            volume_group_id: self.id.clone(),
            volume_ids: volumes.to_vec(),
            ..Default::default()
        };
        groups(fixture).modify_volume_group_membership(request).await.map(drop)
    }

    async fn delete(&self, fixture: &Fixture) -> Answer<()> {
        let request = volumegroup::DeleteVolumeGroupRequest {
            volume_group_id: self.id.clone(),
            ..Default::default()
        };
        groups(fixture).delete_volume_group(request).await.map(drop)
    }

    /// How many volumes it has.
    async fn size(&self, fixture: &Fixture) -> Answer<usize> {
        let request = volumegroup::ControllerGetVolumeGroupRequest {
            volume_group_id: self.id.clone(),
            ..Default::default()
        };
        let answer = groups(fixture).controller_get_volume_group(request).await?;
        Ok(answer.into_inner().volume_group.map_or(0, |group| group.volumes.len()))
    }

    async fn ensure_gone(&self, fixture: &Fixture) {
        if self.size(fixture).await.is_ok() {
            settled("empty", || self.change(fixture, &[])).await;
        }
        settled("delete", || self.delete(fixture)).await;
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

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> Grouped {
        let mut volumes = Vec::new();
        for letter in ["a", "b"] {
            let create = fixture.client().create(&format!("{tag}-{letter}")).size(32 * MIB).block();
            volumes.push(create.done().await.volume_id);
        }
        let mut grouped = Grouped { volumes, name: tag.to_owned(), id: String::new() };
        let group = grouped.create(fixture, &grouped.volumes).await.expect("a group");
        grouped.id = group.volume_group_id;
        self.roll_back(fixture, &grouped).await;
        grouped
    }

    async fn call(&self, fixture: &Fixture, grouped: &Grouped) -> Answer<()> {
        match self {
            Self::Create => grouped.create(fixture, &grouped.volumes).await.map(drop),
            Self::Empty => grouped.change(fixture, &[]).await,
            Self::Delete => grouped.delete(fixture).await,
        }
    }

    async fn holds(&self, fixture: &Fixture, grouped: &Grouped) {
        let size = grouped.size(fixture).await;
        match self {
            Self::Create => {
                assert_eq!(size.expect("a group"), 2);
                let member = fixture.client().delete(&grouped.volumes[0]).await;
                expect_code(member, Code::FailedPrecondition);
            }
            Self::Empty => assert_eq!(size.expect("a group"), 0),
            Self::Delete => drop(expect_code(size, Code::NotFound)),
        }
    }

    async fn roll_back(&self, fixture: &Fixture, grouped: &Grouped) {
        match self {
            Self::Create => grouped.ensure_gone(fixture).await,
            Self::Empty => settled("fill", || grouped.change(fixture, &grouped.volumes)).await,
            Self::Delete => {
                grouped.ensure_gone(fixture).await;
                settled("create", || grouped.create(fixture, &[])).await;
            }
        }
    }

    async fn clear(&self, fixture: &Fixture, grouped: Grouped) {
        grouped.ensure_gone(fixture).await;
        for volume in &grouped.volumes {
            fixture.client().delete(volume).await.expect("delete");
        }
    }
}
