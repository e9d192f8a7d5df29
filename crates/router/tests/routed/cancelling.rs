//! Deadlines of callers, and callers that hang up, as the daemon sees them that a call is carried to.

use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use orlop_model::ByteRange;

use crate::cluster::{Node, controller, router_before, two_nodes};
use crate::requests::{MIB, create, new_volume_at};

const DEADLINE: Duration = Duration::from_secs(77);

fn in_time<M>(message: M) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// All calls of this method have come with the deadline.
fn assert_in_time(nodes: &[&Node], method: &str) {
    let deadlines: Vec<_> = nodes.iter().flat_map(|node| node.calls.deadlines_of(method)).collect();
    assert!(!deadlines.is_empty(), "{method} has reached no node");
    assert!(
        deadlines.iter().all(|it| it.as_deref() == Some("77000000u")),
        "{method}: {deadlines:?}"
    );
}

#[tokio::test]
async fn deadlines_go_on_with_the_call() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let made = client.create_volume(in_time(new_volume_at("v", &["a", "b"]))).await.unwrap();
    let volume_id = made.into_inner().volume.unwrap().volume_id;
    let request = v1::CreateSnapshotRequest {
        source_volume_id: volume_id.clone(),
        name: "s".to_owned(),
        ..Default::default()
    };
    let made = client.create_snapshot(in_time(request)).await.unwrap().into_inner();
    let snapshot_id = made.snapshot.unwrap().snapshot_id;
    client.list_volumes(in_time(v1::ListVolumesRequest::default())).await.unwrap();
    let request =
        v1::GetMetadataAllocatedRequest { snapshot_id: snapshot_id.clone(), ..Default::default() };
    let mut metadata = SnapshotMetadataClient::new(router.clone());
    let stream = metadata.get_metadata_allocated(in_time(request)).await.unwrap();
    drop(stream);
    let request = v1::DeleteSnapshotRequest { snapshot_id, ..Default::default() };
    client.delete_snapshot(in_time(request)).await.unwrap();
    let request = v1::DeleteVolumeRequest { volume_id, ..Default::default() };
    client.delete_volume(in_time(request)).await.unwrap();
    let methods = [
        // What the router itself asks to create one volume.
        "HoldName",
        "GetCapacity",
        "CreateVolume",
        "CreateSnapshot",
        "GetSnapshot",
        "ListVolumes",
        "GetMetadataAllocated",
        "DeleteSnapshot",
        "DeleteVolume",
    ];
    for method in methods {
        assert_in_time(&[&a, &b], method);
    }
}

/// A stream that is not over, because its caller reads only the first message.
#[tokio::test]
async fn a_stream_that_its_caller_drops_ends_on_its_node() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let mut request = new_volume_at("v", &["b"]);
    request.capacity_range = Some(v1::CapacityRange { required_bytes: 512 * MIB, limit_bytes: 0 });
    let volume = create(&mut client, request).await.unwrap().volume_id;
    // More messages than are sent before they are read.
    for block in 0..40_000 {
        let range = ByteRange { start: block * 8192, length: 4096 };
        b.pool.write_blocks(&volume.parse().unwrap(), range).unwrap();
    }
    let request = v1::CreateSnapshotRequest {
        source_volume_id: volume,
        name: "s".to_owned(),
        ..Default::default()
    };
    let made = client.create_snapshot(request).await.unwrap().into_inner();
    let request = v1::GetMetadataAllocatedRequest {
        snapshot_id: made.snapshot.unwrap().snapshot_id,
        max_results: 1,
        ..Default::default()
    };
    let mut metadata = SnapshotMetadataClient::new(router.clone());
    // More than a daemon has for all callers.
    for _ in 0..100 {
        let mut stream =
            metadata.get_metadata_allocated(request.clone()).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
        assert_eq!(b.calls.open_answers(), 1);
        drop(stream);
        let ended = async {
            while b.calls.open_answers() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(DEADLINE, ended).await.expect("its node goes on with it");
    }
}
