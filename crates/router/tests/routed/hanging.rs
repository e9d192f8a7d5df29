//! Daemons that keep their connections and do not answer: a process that is stopped, a pool that hangs.

use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::group_controller_client::GroupControllerClient;
use orlop_model::Pool;
use tonic::Code;

use crate::cluster::{controller, router_before, two_nodes};
use crate::requests::{create, expect, new_volume_at};

/// Far more than a call takes that does not wait for the daemon that hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

async fn in_time<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, call).await.expect("it waits for a daemon that hangs")
}

#[tokio::test]
async fn capabilities_are_offered_without_a_node_that_hangs() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    b.calls.hang_at("ControllerGetCapabilities");
    let request = v1::ControllerGetCapabilitiesRequest {};
    let offered = in_time(client.controller_get_capabilities(request)).await.unwrap();
    assert!(offered.into_inner().capabilities.len() > 8);
    a.calls.hang_at("ControllerGetCapabilities");
    expect(in_time(client.controller_get_capabilities(request)).await, Code::Unavailable);
}

#[tokio::test]
async fn a_node_that_does_not_report_its_space_is_tried_last() {
    let (authority, a, b) = two_nodes().await;
    let (router, _) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    b.calls.hang_at("GetCapacity");
    let mut request = new_volume_at("v", &["a", "b"]);
    request.accessibility_requirements.as_mut().unwrap().preferred.clear();
    let volume = in_time(create(&mut client, request)).await.unwrap();
    assert!(volume.volume_id.contains(&a.pool.id().to_string()), "{}", volume.volume_id);
}

/// The filesystems of the other node are frozen meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_does_not_wait_for_a_node_that_hangs() {
    let (authority, a, b) = two_nodes().await;
    let (router, peers) = router_before(&[&a, &b], &authority).await;
    let mut client = controller(&router);
    let mut source_volume_ids = Vec::new();
    for node in ["a", "b"] {
        let volume = create(&mut client, new_volume_at(node, &[node])).await.unwrap();
        source_volume_ids.push(volume.volume_id);
    }
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name: "g".to_owned(),
        source_volume_ids,
        ..Default::default()
    };
    // While its pool takes the snapshots, when all is frozen on both nodes.
    let (captures, capturing) = std::sync::mpsc::channel::<()>();
    let (release, released) = std::sync::mpsc::channel::<()>();
    b.pool.during_next_capture(move || {
        captures.send(()).unwrap();
        let _ = released.recv();
    });
    let mut groups = GroupControllerClient::new(router.clone());
    let (first, asked) = (request.clone(), groups.clone());
    let taking = tokio::spawn(async move { { asked }.create_volume_group_snapshot(first).await });
    tokio::task::spawn_blocking(move || capturing.recv().unwrap()).await.unwrap();
    let hanging = b.hang();
    let watching = tokio::spawn(async move { peers.watch().await });
    // Its connection fails later, and says less.
    let why = expect(in_time(taking).await.unwrap(), Code::Unavailable);
    assert!(why.contains("node b is unreachable"), "{why}");
    drop((hanging, release));
    let group = loop {
        match groups.create_volume_group_snapshot(request.clone()).await {
            Ok(made) => break made.into_inner().group_snapshot.unwrap(),
            Err(status) => {
                let codes = [Code::Aborted, Code::Unavailable];
                assert!(codes.contains(&status.code()), "{status}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    assert_eq!(group.snapshots.len(), 2);
    let listed = client.list_snapshots(v1::ListSnapshotsRequest::default()).await.unwrap();
    assert_eq!(listed.into_inner().entries.len(), 2);
    watching.abort();
}
