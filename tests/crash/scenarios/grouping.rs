//! Group snapshots and volume groups.

use orlop_tests::volumegroup::controller_client::ControllerClient;
use orlop_tests::{Answer, Code, GroupSnapshotExt, MIB, expect_code, v1, volumegroup};

use super::copying::{Source, check_copy};
use crate::walk::{Scenario, Walk};
use crate::world::{World, settled};

pub(crate) async fn all(walk: &mut Walk) {
    walk.walk(&CreateGroupSnapshot { in_use: false }).await;
    walk.walk(&CreateGroupSnapshot { in_use: true }).await;
    walk.walk(&DeleteGroupSnapshot).await;
    walk.walk(&CreateVolumeGroup).await;
    walk.walk(&ChangeVolumeGroup { empties: true }).await;
    walk.walk(&ChangeVolumeGroup { empties: false }).await;
}

struct CreateGroupSnapshot {
    in_use: bool,
}

async fn members(world: &World, tag: &str, in_use: bool) -> Vec<Source> {
    let first = Source::new(world.client(), &format!("{tag}-a"), in_use).await;
    vec![first, Source::new(world.client(), &format!("{tag}-b"), false).await]
}

fn ids(members: &[Source]) -> Vec<String> {
    members.iter().map(|member| member.id().to_owned()).collect()
}

async fn cut(world: &World, members: &[Source]) -> Answer<v1::VolumeGroupSnapshot> {
    world.client().group_snapshot(&members[0].tag, &ids(members)).await
}

async fn delete(world: &World, group: &v1::VolumeGroupSnapshot) -> Answer<()> {
    world.client().delete_group_snapshot(&group.group_snapshot_id, &group.member_ids()).await
}

async fn undo_members(world: &World, members: &[Source]) {
    for member in members {
        member.undo(world.client()).await;
    }
}

impl Scenario for CreateGroupSnapshot {
    type State = Vec<Source>;

    fn name(&self) -> &'static str {
        if self.in_use { "group-snapshot-in-use" } else { "group-snapshot" }
    }

    async fn prepare(&self, world: &World, tag: &str) -> Vec<Source> {
        members(world, tag, self.in_use).await
    }

    async fn call(&self, world: &World, members: &Vec<Source>) -> Answer<()> {
        cut(world, members).await.map(drop)
    }

    async fn holds(&self, world: &World, members: &Vec<Source>) {
        let group = cut(world, members).await.expect("the group");
        for member in members {
            check_copy(world.client(), group.member_of(member.id()), member).await;
        }
    }

    async fn undo(&self, world: &World, members: &Vec<Source>) {
        let group = settled("cut", || cut(world, members)).await;
        settled("delete", || delete(world, &group)).await;
        undo_members(world, members).await;
    }
}

struct DeleteGroupSnapshot;

impl Scenario for DeleteGroupSnapshot {
    type State = (Vec<Source>, v1::VolumeGroupSnapshot);

    fn name(&self) -> &'static str {
        "delete-group-snapshot"
    }

    async fn prepare(&self, world: &World, tag: &str) -> Self::State {
        let members = members(world, tag, false).await;
        let group = cut(world, &members).await.expect("a group");
        (members, group)
    }

    async fn call(&self, world: &World, (_, group): &Self::State) -> Answer<()> {
        delete(world, group).await
    }

    /// All of it or nothing: no member may be left without its group.
    async fn holds(&self, world: &World, (_, group): &Self::State) {
        let listed = world.client().list_snapshots().await.expect("the list");
        let id = &group.group_snapshot_id;
        assert!(listed.iter().all(|snapshot| snapshot.group_snapshot_id != *id));
        let got = world.client().get_group_snapshot(id, &group.member_ids()).await;
        expect_code(got, Code::NotFound);
    }

    async fn undo(&self, world: &World, (members, group): &Self::State) {
        settled("delete", || delete(world, group)).await;
        undo_members(world, members).await;
    }
}

fn groups(world: &World) -> ControllerClient<tonic::transport::Channel> {
    ControllerClient::new(world.client().channel())
}

struct Grouped {
    volumes: Vec<String>,
    name: String,
}

impl Grouped {
    async fn new(world: &World, tag: &str) -> Self {
        let mut volumes = Vec::new();
        for letter in ["a", "b"] {
            let create = world.client().create(&format!("{tag}-{letter}")).size(32 * MIB).block();
            volumes.push(create.done().await.volume_id);
        }
        Self { volumes, name: tag.to_owned() }
    }

    async fn create(&self, world: &World) -> Answer<volumegroup::VolumeGroup> {
        let request = volumegroup::CreateVolumeGroupRequest {
            name: self.name.clone(),
            volume_ids: self.volumes.clone(),
            ..Default::default()
        };
        let answer = groups(world).create_volume_group(request).await?;
        Ok(answer.into_inner().volume_group.expect("a group in the answer"))
    }

    async fn change(&self, world: &World, id: &str, volumes: &[String]) -> Answer<()> {
        let request = volumegroup::ModifyVolumeGroupMembershipRequest {
            volume_group_id: id.to_owned(),
            volume_ids: volumes.to_vec(),
            ..Default::default()
        };
        groups(world).modify_volume_group_membership(request).await.map(drop)
    }

    async fn delete(&self, world: &World, id: &str) -> Answer<()> {
        let volume_group_id = id.to_owned();
        let request =
            volumegroup::DeleteVolumeGroupRequest { volume_group_id, ..Default::default() };
        groups(world).delete_volume_group(request).await.map(drop)
    }

    async fn undo(&self, world: &World) {
        let group = settled("create", || self.create(world)).await;
        let id = &group.volume_group_id;
        settled("empty", || self.change(world, id, &[])).await;
        settled("delete", || self.delete(world, id)).await;
        for volume in &self.volumes {
            settled("delete", || world.client().delete(volume)).await;
        }
    }
}

struct CreateVolumeGroup;

impl Scenario for CreateVolumeGroup {
    type State = Grouped;

    fn name(&self) -> &'static str {
        "volume-group"
    }

    async fn prepare(&self, world: &World, tag: &str) -> Grouped {
        Grouped::new(world, tag).await
    }

    async fn call(&self, world: &World, grouped: &Grouped) -> Answer<()> {
        grouped.create(world).await.map(drop)
    }

    async fn holds(&self, world: &World, grouped: &Grouped) {
        let group = grouped.create(world).await.expect("the group");
        assert_eq!(group.volumes.len(), 2);
        expect_code(world.client().delete(&grouped.volumes[0]).await, Code::FailedPrecondition);
    }

    async fn undo(&self, world: &World, grouped: &Grouped) {
        grouped.undo(world).await;
    }
}

/// Empties a group, or deletes an empty one.
struct ChangeVolumeGroup {
    empties: bool,
}

impl Scenario for ChangeVolumeGroup {
    type State = (Grouped, String);

    fn name(&self) -> &'static str {
        if self.empties { "empty-volume-group" } else { "delete-volume-group" }
    }

    async fn prepare(&self, world: &World, tag: &str) -> Self::State {
        let grouped = Grouped::new(world, tag).await;
        let id = grouped.create(world).await.expect("a group").volume_group_id;
        if !self.empties {
            grouped.change(world, &id, &[]).await.expect("an empty group");
        }
        (grouped, id)
    }

    async fn call(&self, world: &World, (grouped, id): &Self::State) -> Answer<()> {
        if self.empties {
            return grouped.change(world, id, &[]).await;
        }
        grouped.delete(world, id).await
    }

    async fn holds(&self, world: &World, (_, id): &Self::State) {
        let volume_group_id = id.clone();
        let request =
            volumegroup::ControllerGetVolumeGroupRequest { volume_group_id, ..Default::default() };
        let got = groups(world).controller_get_volume_group(request).await;
        match (self.empties, got) {
            (true, Ok(got)) => {
                assert!(
                    got.into_inner().volume_group.is_some_and(|group| group.volumes.is_empty())
                );
            }
            (_, got) => {
                expect_code(got, Code::NotFound);
            }
        }
    }

    async fn undo(&self, world: &World, (grouped, _): &Self::State) {
        grouped.undo(world).await;
    }
}
