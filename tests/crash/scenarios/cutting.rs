//! Group snapshots.

use orlop_tests::{Answer, Code, GroupSnapshotExt, expect_code, v1};

use super::copying::Source;
use crate::walk::{Scenario, Stroll};
use crate::world::{World, settled};

pub(crate) async fn all(stroll: &mut impl Stroll) {
    stroll.walk(&CreateGroupSnapshot { in_use: false }).await;
    stroll.walk(&CreateGroupSnapshot { in_use: true }).await;
    stroll.walk(&DeleteGroupSnapshot).await;
}

pub(crate) struct Members {
    sources: [Source; 2],
    group: v1::VolumeGroupSnapshot,
}

impl Members {
    /// With their group snapshot, whose ids are always the same.
    async fn new(world: &World, tag: &str, in_use: bool) -> Self {
        let client = world.client();
        let sources = [
            Source::new(client, &format!("{tag}-a"), in_use).await,
            Source::new(client, &format!("{tag}-b"), false).await,
        ];
        let group = cut(world, &sources).await.expect("a group snapshot");
        Self { sources, group }
    }

    async fn delete(&self, world: &World) -> Answer<()> {
        let id = &self.group.group_snapshot_id;
        world.client().delete_group_snapshot(id, &self.group.member_ids()).await
    }

    async fn clear(self, world: &World) {
        for source in self.sources {
            source.clear(world.client()).await;
        }
    }
}

async fn cut(world: &World, sources: &[Source]) -> Answer<v1::VolumeGroupSnapshot> {
    let ids: Vec<_> = sources.iter().map(|source| source.id().to_owned()).collect();
    world.client().group_snapshot(&sources[0].tag, &ids).await
}

struct CreateGroupSnapshot {
    in_use: bool,
}

impl Scenario for CreateGroupSnapshot {
    type State = Members;

    fn name(&self) -> &'static str {
        if self.in_use { "group-snapshot-in-use" } else { "group-snapshot" }
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.GroupController/CreateVolumeGroupSnapshot"
    }

    async fn prepare(&self, world: &World, tag: &str) -> Members {
        let members = Members::new(world, tag, self.in_use).await;
        members.delete(world).await.expect("delete the group snapshot");
        members
    }

    async fn call(&self, world: &World, members: &Members) -> Answer<()> {
        cut(world, &members.sources).await.map(drop)
    }

    async fn holds(&self, world: &World, members: &Members) {
        let group = cut(world, &members.sources).await.expect("the group");
        for source in &members.sources {
            source.assert_writable();
            source.check_copy(world.client(), group.member_of(source.id())).await;
        }
    }

    async fn take_back(&self, world: &World, members: &Members) {
        settled("delete", || members.delete(world)).await;
        for source in &members.sources {
            source.assert_writable();
        }
    }

    async fn clear(&self, world: &World, members: Members) {
        members.clear(world).await;
    }
}

struct DeleteGroupSnapshot;

impl Scenario for DeleteGroupSnapshot {
    type State = Members;

    fn name(&self) -> &'static str {
        "delete-group-snapshot"
    }

    fn rpc(&self) -> &'static str {
        "csi.v1.GroupController/DeleteVolumeGroupSnapshot"
    }

    async fn prepare(&self, world: &World, tag: &str) -> Members {
        Members::new(world, tag, false).await
    }

    async fn call(&self, world: &World, members: &Members) -> Answer<()> {
        members.delete(world).await
    }

    /// All of it or nothing: no member may be left without its group.
    async fn holds(&self, world: &World, members: &Members) {
        let listed = world.client().list_snapshots().await.expect("the list");
        let id = &members.group.group_snapshot_id;
        assert!(listed.iter().all(|snapshot| snapshot.group_snapshot_id != *id));
        let got = world.client().get_group_snapshot(id, &members.group.member_ids()).await;
        expect_code(got, Code::NotFound);
    }

    async fn take_back(&self, world: &World, members: &Members) {
        let again = settled("cut", || cut(world, &members.sources)).await;
        assert_eq!(again.group_snapshot_id, members.group.group_snapshot_id);
    }

    async fn clear(&self, world: &World, members: Members) {
        members.delete(world).await.expect("delete");
        members.clear(world).await;
    }
}
