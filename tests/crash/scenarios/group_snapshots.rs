//! Group snapshots.

use orlop_tests::{Answer, Code, GroupSnapshotExt, expect_code, v1};

use super::copying::Source;
use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::{Fixture, settled};

pub(crate) async fn all(runner: &mut impl ScenarioRunner) {
    runner.run(&CreateGroupSnapshot { in_use: false }).await;
    runner.run(&CreateGroupSnapshot { in_use: true }).await;
    runner.run(&DeleteGroupSnapshot).await;
}

/// On a pool whose files are all captured at one instant, in use or not.
pub(crate) async fn one_instant(runner: &mut impl ScenarioRunner) {
    runner.run(&CreateGroupSnapshot { in_use: true }).await;
}

pub(crate) struct Members {
    sources: [Source; 2],
    group: v1::VolumeGroupSnapshot,
}

impl Members {
    /// With their group snapshot, whose ids are always the same.
    async fn new(fixture: &Fixture, tag: &str, in_use: bool) -> Self {
        let client = fixture.client();
        let sources = [
            Source::new(client, &format!("{tag}-a"), in_use).await,
            Source::new(client, &format!("{tag}-b"), false).await,
        ];
        let group = take_group(fixture, &sources).await.expect("a group snapshot");
        Self { sources, group }
    }

    async fn delete(&self, fixture: &Fixture) -> Answer<()> {
        let id = &self.group.group_snapshot_id;
        fixture.client().delete_group_snapshot(id, &self.group.member_ids()).await
    }

    async fn clear(self, fixture: &Fixture) {
        for source in self.sources {
            source.clear(fixture.client()).await;
        }
    }
}

async fn take_group(fixture: &Fixture, sources: &[Source]) -> Answer<v1::VolumeGroupSnapshot> {
    let ids: Vec<_> = sources.iter().map(|source| source.id().to_owned()).collect();
    fixture.client().group_snapshot(&sources[0].tag, &ids).await
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

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> Members {
        let members = Members::new(fixture, tag, self.in_use).await;
        members.delete(fixture).await.expect("delete the group snapshot");
        members
    }

    async fn call(&self, fixture: &Fixture, members: &Members) -> Answer<()> {
        take_group(fixture, &members.sources).await.map(drop)
    }

    async fn holds(&self, fixture: &Fixture, members: &Members) {
        let group = take_group(fixture, &members.sources).await.expect("the group");
        for source in &members.sources {
            source.assert_writable();
            source.check_copy(fixture.client(), group.member_of(source.id())).await;
        }
    }

    async fn roll_back(&self, fixture: &Fixture, members: &Members) {
        settled("delete", || members.delete(fixture)).await;
        for source in &members.sources {
            source.assert_writable();
        }
    }

    async fn clear(&self, fixture: &Fixture, members: Members) {
        members.clear(fixture).await;
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

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> Members {
        Members::new(fixture, tag, false).await
    }

    async fn call(&self, fixture: &Fixture, members: &Members) -> Answer<()> {
        members.delete(fixture).await
    }

    /// All of it or nothing: no member may be left without its group.
    async fn holds(&self, fixture: &Fixture, members: &Members) {
        let listed = fixture.client().list_snapshots().await.expect("the list");
        let id = &members.group.group_snapshot_id;
        assert!(listed.iter().all(|snapshot| snapshot.group_snapshot_id != *id));
        let got = fixture.client().get_group_snapshot(id, &members.group.member_ids()).await;
        expect_code(got, Code::NotFound);
    }

    async fn roll_back(&self, fixture: &Fixture, members: &Members) {
        let again =
            settled("take the group snapshot", || take_group(fixture, &members.sources)).await;
        assert_eq!(again.group_snapshot_id, members.group.group_snapshot_id);
    }

    async fn clear(&self, fixture: &Fixture, members: Members) {
        members.delete(fixture).await.expect("delete");
        members.clear(fixture).await;
    }
}
