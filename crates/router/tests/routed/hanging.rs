//! Daemons that keep their connections and do not answer: a process that is stopped, a pool that hangs.

use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_model::Pool;
use tonic::Code;

use crate::cluster::{controller, router_before, two_nodes};
use crate::requests::{create, expect, new_volume_at};

/// Far more than a call takes that does not wait for the daemon that hangs.
const PATIENCE: Duration = Duration::from_secs(120);

async fn in_time<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, call).await.expect("it waits for a daemon that hangs")
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
