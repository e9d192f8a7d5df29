//! Secrets go on with a call, and stay out of the log of each daemon on the way.

use std::collections::BTreeMap;

use orlop_tests::*;

use crate::router::cluster::{Cluster, at};

const SECRET: &str = "canary-5d20b7";

fn secrets() -> BTreeMap<String, String> {
    [("token".to_owned(), SECRET.to_owned())].into()
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_log_on_the_way() {
    needs_root!();
    let configure = |launch: Launch| launch.env("ORLOP_LOG", "trace");
    let mut cluster = Cluster::start_with(PoolFs::Directory, configure).await;
    let client = cluster.client();
    let mut controller = client.controller();
    let mut create = client.create("v").size(MIB).block();
    create.request.accessibility_requirements = Some(at("node-b"));
    create.request.secrets = secrets();
    let volume_id = create.done().await.volume_id;
    let request = v1::ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id.clone(),
        volume_capabilities: vec![block()],
        secrets: secrets(),
        ..Default::default()
    };
    controller.validate_volume_capabilities(request).await.unwrap();
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: volume_id.clone(),
        capacity_range: Some(v1::CapacityRange { required_bytes: int(2 * MIB), limit_bytes: 0 }),
        secrets: secrets(),
        ..Default::default()
    };
    controller.controller_expand_volume(request).await.unwrap();
    let request = v1::CreateSnapshotRequest {
        source_volume_id: volume_id.clone(),
        name: "s".to_owned(),
        secrets: secrets(),
        ..Default::default()
    };
    let made = controller.create_snapshot(request).await.unwrap().into_inner();
    let snapshot_id = made.snapshot.unwrap().snapshot_id;
    let request = v1::ListSnapshotsRequest { secrets: secrets(), ..Default::default() };
    controller.list_snapshots(request).await.unwrap();
    let request = v1::DeleteSnapshotRequest { snapshot_id, secrets: secrets() };
    controller.delete_snapshot(request).await.unwrap();
    let request = v1::DeleteVolumeRequest { volume_id, secrets: secrets() };
    controller.delete_volume(request.clone()).await.unwrap();
    // What is refused, and what cannot be carried, is logged with more words.
    let mut refused = client.create("").size(MIB).block();
    refused.request.secrets = secrets();
    expect_code(refused.send().await, Code::InvalidArgument);
    cluster.nodes[1].daemon.kill9();
    expect_code(controller.delete_volume(request).await, Code::Unavailable);
    let daemons = cluster.nodes.iter().map(|node| &node.daemon).chain([&cluster.router]);
    for daemon in daemons {
        assert!(daemon.has_logged("method="), "{}", daemon.log_end());
        assert!(!daemon.log().contains(SECRET));
    }
}
