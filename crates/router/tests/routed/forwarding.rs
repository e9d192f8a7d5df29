//! By the id of what a call is about.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use orlop_csi::proto::csi::{v0, v1::group_controller_client::GroupControllerClient};
use orlop_csi::proto::reclaimspace;
use orlop_model::Pool;
use tonic::Code;

use crate::cluster::{Authority, Node, SIZE, controller, router_before, two_nodes};
use crate::requests::{MIB, create, delete, expect, new_volume_at};

fn is_on(id: &str, node: &Node) -> bool {
    id.contains(&format!("-{}-", node.pool.id()))
}

#[tokio::test]
async fn each_call_reaches_the_node_of_its_volume() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    for node in [&a, &b] {
        let volume = create(&mut client, new_volume_at("v", &[&node.name])).await;
        let volume = volume.unwrap();
        let id = volume.volume_id.clone();
        assert!(is_on(&id, node), "{id}");
        let expanded = client
            .controller_expand_volume(v1::ControllerExpandVolumeRequest {
                volume_id: id.clone(),
                capacity_range: Some(v1::CapacityRange { required_bytes: 2 * MIB, limit_bytes: 0 }),
                ..Default::default()
            })
            .await
            .unwrap();
        assert_eq!(expanded.into_inner().capacity_bytes, 2 * MIB);
        let request = v1::CreateSnapshotRequest {
            source_volume_id: id.clone(),
            name: format!("snapshot of {}", node.name),
            ..Default::default()
        };
        let snapshot = client.create_snapshot(request).await.unwrap().into_inner();
        let snapshot = snapshot.snapshot.unwrap().snapshot_id;
        assert!(is_on(&snapshot, node), "{snapshot}");
        // From a snapshot: on the node that has it, whatever free space others have.
        let restored = v1::CreateVolumeRequest {
            name: format!("restored on {}", node.name),
            capacity_range: Some(v1::CapacityRange { required_bytes: 2 * MIB, limit_bytes: 0 }),
            volume_capabilities: vec![crate::requests::block()],
            volume_content_source: Some(v1::VolumeContentSource {
                r#type: Some(v1::volume_content_source::Type::Snapshot(
                    v1::volume_content_source::SnapshotSource { snapshot_id: snapshot.clone() },
                )),
            }),
            ..Default::default()
        };
        let restored = create(&mut client, restored).await.unwrap();
        assert!(is_on(&restored.volume_id, node), "{}", restored.volume_id);
        delete(&mut client, &restored.volume_id).await.unwrap();
        let request =
            v1::DeleteSnapshotRequest { snapshot_id: snapshot.clone(), ..Default::default() };
        client.delete_snapshot(request).await.unwrap();
        let request = v1::GetSnapshotRequest { snapshot_id: snapshot, ..Default::default() };
        expect(client.get_snapshot(request).await, Code::NotFound);
        delete(&mut client, &id).await.unwrap();
        let request = v1::ControllerGetVolumeRequest { volume_id: id };
        expect(client.controller_get_volume(request).await, Code::NotFound);
    }
}

#[tokio::test]
async fn other_protocols_go_the_same_way() {
    let authority = Authority::new();
    let (a, b) =
        (Node::start("a", &authority, SIZE).await, Node::start("b", &authority, 2 * SIZE).await);
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut old = v0::controller_client::ControllerClient::new(router.clone());
    let request = v0::CreateVolumeRequest {
        name: "old".to_owned(),
        capacity_range: Some(v0::CapacityRange { required_bytes: MIB, limit_bytes: 0 }),
        volume_capabilities: vec![v0::VolumeCapability {
            access_type: Some(v0::volume_capability::AccessType::Block(
                v0::volume_capability::BlockVolume {},
            )),
            access_mode: Some(v0::volume_capability::AccessMode { mode: 1 }),
        }],
        ..Default::default()
    };
    let volume = old.create_volume(request.clone()).await.unwrap().into_inner().volume.unwrap();
    assert!(is_on(&volume.id, &b), "the one with more space: {}", volume.id);
    let again = old.create_volume(request).await.unwrap().into_inner().volume.unwrap();
    assert_eq!(again.id, volume.id);
    let listed = old.list_volumes(v0::ListVolumesRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.entries.len(), 1);
    let capacity = old.get_capacity(v0::GetCapacityRequest::default()).await.unwrap().into_inner();
    assert!(capacity.available_capacity > i64::try_from(2 * SIZE).unwrap());

    let mut reclaim =
        reclaimspace::reclaim_space_controller_client::ReclaimSpaceControllerClient::new(
            router.clone(),
        );
    let request = reclaimspace::ControllerReclaimSpaceRequest {
        volume_id: volume.id.clone(),
        ..Default::default()
    };
    reclaim.controller_reclaim_space(request).await.unwrap();
    let request = v0::DeleteVolumeRequest { volume_id: volume.id, ..Default::default() };
    old.delete_volume(request).await.unwrap();
    assert!(b.pool.catalogue().volumes(None, 0).unwrap().is_empty());
}

#[tokio::test]
async fn changed_blocks_are_streamed_from_their_node() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let volume = create(&mut client, new_volume_at("v", &["b"])).await.unwrap();
    let request = v1::CreateSnapshotRequest {
        source_volume_id: volume.volume_id,
        name: "s".to_owned(),
        ..Default::default()
    };
    let snapshot = client.create_snapshot(request).await.unwrap().into_inner().snapshot.unwrap();
    let request =
        v1::GetMetadataAllocatedRequest { snapshot_id: snapshot.snapshot_id, ..Default::default() };
    let mut metadata = SnapshotMetadataClient::new(router.clone());
    let mut stream = metadata.get_metadata_allocated(request).await.unwrap().into_inner();
    while let Some(message) = stream.message().await.unwrap() {
        assert_eq!(message.volume_capacity_bytes, MIB);
    }
    let request = v1::GetMetadataAllocatedRequest {
        snapshot_id: format!("s-{}-{}", b.pool.id(), "0".repeat(32)),
        ..Default::default()
    };
    let missing = match metadata.get_metadata_allocated(request).await {
        Err(status) => Err(status),
        Ok(stream) => stream.into_inner().message().await.map(drop),
    };
    expect(missing, Code::NotFound);
}

#[tokio::test]
async fn groups_are_made_where_their_volumes_are() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let mut ids = Vec::new();
    for (name, node) in [("one", "b"), ("two", "b")] {
        ids.push(create(&mut client, new_volume_at(name, &[node])).await.unwrap().volume_id);
    }
    let mut groups = GroupControllerClient::new(router.clone());
    let request = |sources: &[String]| v1::CreateVolumeGroupSnapshotRequest {
        name: "group".to_owned(),
        source_volume_ids: sources.to_vec(),
        ..Default::default()
    };
    let made = groups.create_volume_group_snapshot(request(&ids)).await.unwrap().into_inner();
    let group = made.group_snapshot.unwrap();
    assert!(is_on(&group.group_snapshot_id, &b), "{}", group.group_snapshot_id);
    let request = v1::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id,
        snapshot_ids: group.snapshots.iter().map(|member| member.snapshot_id.clone()).collect(),
        ..Default::default()
    };
    groups.delete_volume_group_snapshot(request).await.unwrap();
}

/// The daemon that is called refuses what no daemon could do.
#[tokio::test]
async fn malformed_requests_are_refused_as_without_a_router() {
    let authority = Authority::new();
    let a = Node::start("a", &authority, SIZE).await;
    let (router, _) = router_before(&[&a], &authority).await;
    let mut client = controller(&router);
    expect(create(&mut client, v1::CreateVolumeRequest::default()).await, Code::InvalidArgument);
    expect(delete(&mut client, "").await, Code::InvalidArgument);
    delete(&mut client, "never issued").await.unwrap();
    let request = v1::ControllerGetVolumeRequest { volume_id: "never issued".to_owned() };
    expect(client.controller_get_volume(request).await, Code::NotFound);
    let request = v1::ListVolumesRequest { max_entries: -1, ..Default::default() };
    expect(client.list_volumes(request).await, Code::InvalidArgument);
    let mut many = new_volume_at("x", &["a"]);
    many.parameters.insert("no-such-parameter".to_owned(), "x".to_owned());
    expect(create(&mut client, many).await, Code::InvalidArgument);
    let mut large = new_volume_at("y", &["a"]);
    large.secrets.insert("s".to_owned(), "x".repeat(5 << 20));
    expect(create(&mut client, large).await, Code::OutOfRange);
}
