//! Group snapshots of volumes on several nodes.

use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::group_controller_client::GroupControllerClient;
use orlop_csi::proto::volumegroup::CreateVolumeGroupRequest;
use orlop_csi::proto::volumegroup::controller_client::ControllerClient as VolumeGroupClient;
use orlop_model::{Error, Pool};
use orlop_router::Router;
use tonic::Code;

use crate::cluster::{Authority, Node, SIZE, controller, router_before};
use crate::requests::{create, expect, new_volume_at};

struct Fixture {
    authority: Authority,
    nodes: Vec<Node>,
    router: Router,
    client: ControllerClient<Router>,
    groups: GroupControllerClient<Router>,
    sources: Vec<String>,
}

/// Two volumes on each of two nodes.
async fn fixture() -> Fixture {
    let authority = Authority::new();
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        nodes.push(Node::start(name, &authority, SIZE).await);
    }
    let (router, _) = router_before(&nodes.iter().collect::<Vec<_>>(), &authority).await;
    let mut client = controller(&router);
    let mut sources = Vec::new();
    for (name, node) in [("one", "a"), ("two", "b"), ("three", "a"), ("four", "b")] {
        sources.push(create(&mut client, new_volume_at(name, &[node])).await.unwrap().volume_id);
    }
    let groups = GroupControllerClient::new(router.clone());
    Fixture { authority, nodes, router, client, groups, sources }
}

fn request(name: &str, sources: &[String]) -> v1::CreateVolumeGroupSnapshotRequest {
    v1::CreateVolumeGroupSnapshotRequest {
        name: name.to_owned(),
        source_volume_ids: sources.to_vec(),
        ..Default::default()
    }
}

fn ids(group: &v1::VolumeGroupSnapshot) -> Vec<String> {
    group.snapshots.iter().map(|member| member.snapshot_id.clone()).collect()
}

impl Fixture {
    async fn snapshots(&mut self) -> usize {
        let listed = self.client.list_snapshots(v1::ListSnapshotsRequest::default()).await;
        listed.unwrap().into_inner().entries.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_over_all_nodes_or_nowhere() {
    let mut fixture = fixture().await;
    let sources = fixture.sources.clone();
    let made = fixture.groups.create_volume_group_snapshot(request("g", &sources)).await.unwrap();
    let guarantees = made.metadata().get_all("orlop-consistency").iter().count();
    assert_eq!(guarantees, 4);
    let group = made.into_inner().group_snapshot.unwrap();
    assert_eq!(group.snapshots.len(), 4);
    assert!(group.snapshots.iter().all(|it| it.group_snapshot_id == group.group_snapshot_id));
    // Also where each is looked at by itself.
    let listed = fixture.client.list_snapshots(v1::ListSnapshotsRequest::default()).await.unwrap();
    for entry in listed.into_inner().entries {
        assert_eq!(entry.snapshot.unwrap().group_snapshot_id, group.group_snapshot_id);
    }
    let again = fixture.groups.create_volume_group_snapshot(request("g", &sources)).await.unwrap();
    let mut again = again.into_inner().group_snapshot.unwrap();
    let mut first = group.clone();
    for group in [&mut again, &mut first] {
        group.snapshots.sort_by(|one, other| one.snapshot_id.cmp(&other.snapshot_id));
    }
    assert_eq!(again, first);
    let other = fixture.groups.create_volume_group_snapshot(request("g", &sources[..3])).await;
    expect(other, Code::AlreadyExists);
    let one = fixture.groups.create_volume_group_snapshot(request("g", &sources[..1])).await;
    expect(one, Code::AlreadyExists);

    let get = |snapshot_ids: Vec<String>| v1::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids,
        ..Default::default()
    };
    let found = fixture.groups.get_volume_group_snapshot(get(ids(&group))).await.unwrap();
    assert_eq!(found.into_inner().group_snapshot.unwrap().snapshots.len(), 4);
    // Those of one node alone, and all but one.
    let of_first = group.group_snapshot_id.split('-').nth(1).unwrap().to_owned();
    let part = ids(&group).into_iter().filter(|id| id.contains(&of_first)).collect::<Vec<_>>();
    for wrong in [part, ids(&group)[1..].to_vec()] {
        let refused = fixture.groups.get_volume_group_snapshot(get(wrong.clone())).await;
        expect(refused, Code::InvalidArgument);
        let request = v1::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id.clone(),
            snapshot_ids: wrong,
            ..Default::default()
        };
        let refused = fixture.groups.delete_volume_group_snapshot(request).await;
        expect(refused, Code::InvalidArgument);
    }
    assert_eq!(fixture.snapshots().await, 4);
    let request = v1::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids: ids(&group),
        ..Default::default()
    };
    for _ in 0..2 {
        fixture.groups.delete_volume_group_snapshot(request.clone()).await.unwrap();
        assert_eq!(fixture.snapshots().await, 0);
    }
}

/// The second node cannot take its part: neither does the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_undoes_the_others() {
    let mut fixture = fixture().await;
    let mut sources = fixture.sources.clone();
    sources.push(format!("v-{}-{}", fixture.nodes[1].pool.id(), "0".repeat(32)));
    let refused = fixture.groups.create_volume_group_snapshot(request("g", &sources)).await;
    expect(refused, Code::NotFound);
    assert_eq!(fixture.snapshots().await, 0);
    let sources = fixture.sources.clone();
    fixture.groups.create_volume_group_snapshot(request("g", &sources)).await.unwrap();
    assert_eq!(fixture.snapshots().await, 4);
}

/// A caller that hangs up at any moment leaves a whole group, or what the next call replaces.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_group_is_completed_by_the_next_call() {
    let fixture = fixture().await;
    let mut client = fixture.client.clone();
    for round in 0..30u64 {
        let name = format!("g{round}");
        let mut groups = fixture.groups.clone();
        let first = groups.create_volume_group_snapshot(request(&name, &fixture.sources));
        let _ = tokio::time::timeout(Duration::from_micros(round * 250), first).await;
        let nodes: Vec<_> = fixture.nodes.iter().collect();
        let (other, _) = router_before(&nodes, &fixture.authority).await;
        let mut groups = GroupControllerClient::new(other);
        let group = loop {
            match groups.create_volume_group_snapshot(request(&name, &fixture.sources)).await {
                Ok(made) => break made.into_inner().group_snapshot.unwrap(),
                Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
            }
        };
        assert_eq!(group.snapshots.len(), 4);
        let listed = client.list_snapshots(v1::ListSnapshotsRequest::default()).await.unwrap();
        assert_eq!(listed.into_inner().entries.len(), 4, "round {round}");
        let request = v1::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id.clone(),
            snapshot_ids: ids(&group),
            ..Default::default()
        };
        groups.delete_volume_group_snapshot(request).await.unwrap();
    }
    drop(fixture.router);
}

fn snapshots_on(node: &Node) -> usize {
    node.pool.catalogue().snapshots(None, 0).unwrap().len()
}

/// One part is committed already, and then the other one cannot be.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_hangs_up_between_two_commits_leaves_no_part() {
    let fixture = fixture().await;
    let (a, b) = (&fixture.nodes[0], &fixture.nodes[1]);
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let (release, released) = std::sync::mpsc::channel::<()>();
    b.pool.during_next_commit(move || {
        begin.send(()).unwrap();
        let _ = released.recv();
    });
    b.pool.fail_next("commit", Error::exhausted("the disk is full"));
    let (mut groups, wanted) = (fixture.groups.clone(), request("g", &fixture.sources));
    let calling = tokio::spawn(async move { groups.create_volume_group_snapshot(wanted).await });
    tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
    while snapshots_on(a) < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    calling.abort();
    assert!(calling.await.is_err_and(|error| error.is_cancelled()));
    drop(release);
    let undone = async {
        while snapshots_on(a) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), undone).await.expect("a part is left");
    assert_eq!(snapshots_on(b), 0);
}

/// A caller that lists the members again finds those that are left, which do not name the pool of the group's id.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_deletion_is_completed_with_the_members_that_are_left() {
    let mut fixture = fixture().await;
    let wanted = request("g", &fixture.sources);
    let made = fixture.groups.create_volume_group_snapshot(wanted).await.unwrap();
    let group = made.into_inner().group_snapshot.unwrap();
    let delete = |snapshot_ids| v1::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids,
        ..Default::default()
    };
    let first = group.group_snapshot_id.split('-').nth(1).unwrap().to_owned();
    let is_last = |node: &&Node| node.pool.id().to_string() != first;
    let last = fixture.nodes.iter().find(is_last).unwrap();
    last.pool.fail_next("ensure_no_group_snapshot", Error::exhausted("the disk is full"));
    let stopped = fixture.groups.delete_volume_group_snapshot(delete(ids(&group))).await;
    expect(stopped, Code::ResourceExhausted);
    assert_eq!(fixture.snapshots().await, 2);
    let (_, left): (Vec<_>, Vec<_>) = ids(&group).into_iter().partition(|id| id.contains(&first));
    fixture.groups.delete_volume_group_snapshot(delete(left)).await.unwrap();
    assert_eq!(fixture.snapshots().await, 0, "it was deleted, as the answer says");
}

/// A daemon without peers deletes such a group too.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_has_lost_a_member_can_be_deleted() {
    let mut fixture = fixture().await;
    let wanted = request("g", &fixture.sources);
    let made = fixture.groups.create_volume_group_snapshot(wanted).await.unwrap();
    let group = made.into_inner().group_snapshot.unwrap();
    for node in &fixture.nodes {
        let lost = node.pool.catalogue().snapshots(None, 1).unwrap().remove(0);
        node.pool.lose_snapshot(&lost.id);
    }
    let delete = |snapshot_ids| v1::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids,
        ..Default::default()
    };
    let wrong =
        fixture.groups.delete_volume_group_snapshot(delete(ids(&group)[1..].to_vec())).await;
    expect(wrong, Code::InvalidArgument);
    assert_eq!(fixture.snapshots().await, 2);
    fixture.groups.delete_volume_group_snapshot(delete(ids(&group))).await.unwrap();
    assert_eq!(fixture.snapshots().await, 0);
}

/// Of CSI-Addons, which are on one pool.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_group_has_its_name_on_all_nodes() {
    let fixture = fixture().await;
    let mut groups = VolumeGroupClient::new(fixture.router.clone());
    let request = |name: &str, volumes: &[&String]| CreateVolumeGroupRequest {
        name: name.to_owned(),
        volume_ids: volumes.iter().map(|id| (*id).clone()).collect(),
        ..Default::default()
    };
    let mut create = async |request| {
        let created = groups.create_volume_group(request).await?;
        Ok::<_, tonic::Status>(created.into_inner().volume_group.unwrap().volume_group_id)
    };
    let [on_a, on_b, ..] = fixture.sources.as_slice() else { panic!() };
    let filled = create(request("filled", &[on_b])).await.unwrap();
    assert_eq!(create(request("filled", &[on_b])).await.unwrap(), filled);
    // Members come and go, so the same call without any is one of the same group.
    assert_eq!(create(request("filled", &[])).await.unwrap(), filled);
    expect(create(request("filled", &[on_a])).await, Code::AlreadyExists);
    expect(create(request("both", &[on_a, on_b])).await, Code::FailedPrecondition);
    let empty = create(request("empty", &[])).await.unwrap();
    assert_eq!(create(request("empty", &[])).await.unwrap(), empty);
    expect(create(request("", &[])).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_volume_group_is_not_made_while_a_node_may_have_it() {
    let mut fixture = fixture().await;
    fixture.nodes[1].stop();
    let nodes: Vec<_> = fixture.nodes.iter().collect();
    let (router, _) = router_before(&nodes, &fixture.authority).await;
    let request = CreateVolumeGroupRequest { name: "g".to_owned(), ..Default::default() };
    let refused = VolumeGroupClient::new(router).create_volume_group(request).await;
    expect(refused, Code::Unavailable);
}
