//! Each mode serves its services and no others; what is advertised is what works.

use orlop_tests::*;
use tonic::Status;
use v1::controller_service_capability::Type as ControllerType;
use v1::controller_service_capability::rpc::Type as ControllerRpc;

/// The code of an empty request, for every RPC of a service.
macro_rules! codes {
    ($client:expr, $($method:ident($request:ident)),+ $(,)?) => {{
        let mut codes = Vec::new();
        $(
            let request = v1::$request::default();
            let answer = $client.$method(request).await.map(drop);
            codes.push((stringify!($method), code(answer)));
        )+
        codes
    }};
}

fn code(answer: Result<(), Status>) -> Code {
    match answer {
        Ok(()) => Code::Ok,
        Err(status) => {
            assert!(!status.message().is_empty(), "GEN-16");
            assert!(status.details().is_empty(), "GEN-17");
            status.code()
        }
    }
}

async fn controller_codes(client: &Client) -> Vec<(&'static str, Code)> {
    codes!(
        client.controller(),
        create_volume(CreateVolumeRequest),
        delete_volume(DeleteVolumeRequest),
        controller_publish_volume(ControllerPublishVolumeRequest),
        controller_unpublish_volume(ControllerUnpublishVolumeRequest),
        validate_volume_capabilities(ValidateVolumeCapabilitiesRequest),
        list_volumes(ListVolumesRequest),
        get_capacity(GetCapacityRequest),
        controller_get_capabilities(ControllerGetCapabilitiesRequest),
        create_snapshot(CreateSnapshotRequest),
        delete_snapshot(DeleteSnapshotRequest),
        list_snapshots(ListSnapshotsRequest),
        get_snapshot(GetSnapshotRequest),
        controller_expand_volume(ControllerExpandVolumeRequest),
        controller_get_volume(ControllerGetVolumeRequest),
        controller_modify_volume(ControllerModifyVolumeRequest),
        controller_get_volume_health(ControllerGetVolumeHealthRequest),
        controller_list_volume_health(ControllerListVolumeHealthRequest),
    )
}

async fn node_codes(client: &Client) -> Vec<(&'static str, Code)> {
    codes!(
        client.node(),
        node_stage_volume(NodeStageVolumeRequest),
        node_unstage_volume(NodeUnstageVolumeRequest),
        node_publish_volume(NodePublishVolumeRequest),
        node_unpublish_volume(NodeUnpublishVolumeRequest),
        node_get_volume_stats(NodeGetVolumeStatsRequest),
        node_get_volume_health(NodeGetVolumeHealthRequest),
        node_get_storage_health(NodeGetStorageHealthRequest),
        node_expand_volume(NodeExpandVolumeRequest),
        node_get_capabilities(NodeGetCapabilitiesRequest),
        node_get_info(NodeGetInfoRequest),
    )
}

/// Answered by the service itself: what needs no fields is OK, what needs some is refused.
fn assert_served(codes: &[(&str, Code)]) {
    for (method, code) in codes {
        assert!(matches!(code, Code::Ok | Code::InvalidArgument), "{method}: {code:?}");
    }
}

fn assert_not_served(codes: &[(&str, Code)]) {
    for (method, code) in codes {
        assert_eq!(*code, Code::Unimplemented, "{method}");
    }
}

async fn plugin_capabilities(client: &Client) -> v1::GetPluginCapabilitiesResponse {
    let request = v1::GetPluginCapabilitiesRequest {};
    client.identity().get_plugin_capabilities(request).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mode_serves_its_own_services() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut said = Vec::new();
    for (mode, controller, node) in
        [("all", true, true), ("controller", true, false), ("node", false, true)]
    {
        let mut daemon = Launch::on(&pool).env("ORLOP_MODE", mode).start().await;
        let client = daemon.client();
        let identity = codes!(
            client.identity(),
            get_plugin_info(GetPluginInfoRequest),
            get_plugin_capabilities(GetPluginCapabilitiesRequest),
            probe(ProbeRequest),
        );
        assert!(identity.iter().all(|(_, code)| *code == Code::Ok), "{mode}: {identity:?}");
        let check = |served: bool, codes: &[(&str, Code)]| match served {
            true => assert_served(codes),
            false => assert_not_served(codes),
        };
        check(controller, &controller_codes(&client).await);
        check(node, &node_codes(&client).await);
        said.push(plugin_capabilities(&client).await);
        daemon.terminate();
    }
    assert!(said.iter().all(|each| *each == said[0]), "ID-11: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_controller_publish_without_attach() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Launch::on(&pool).env("ORLOP_ATTACH", "false").start().await;
    let client = daemon.client();
    let attaching = [
        ControllerRpc::PublishUnpublishVolume,
        ControllerRpc::PublishReadonly,
        ControllerRpc::ListVolumesPublishedNodes,
    ];
    let advertised = controller_capabilities(&client).await;
    assert!(attaching.iter().all(|rpc| !advertised.contains(rpc)), "{advertised:?}");

    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let id = &volume.volume_id;
    let capability = mount("ext4");
    let published = client.controller_publish(id, "test-node", capability.clone(), false).await;
    expect_code(published, Code::Unimplemented);
    expect_code(client.controller_unpublish(id, "test-node").await, Code::Unimplemented);
    // And no call misses it.
    let node = client.on_node(&volume, capability);
    node.up().await;
    node.down().await;
    client.delete(id).await.unwrap();
}

async fn controller_capabilities(client: &Client) -> Vec<ControllerRpc> {
    let request = v1::ControllerGetCapabilitiesRequest {};
    let answer = client.controller().controller_get_capabilities(request).await.unwrap();
    let types = answer.into_inner().capabilities.into_iter().map(|each| each.r#type);
    types
        .map(|each| match each.expect("GEN-40") {
            ControllerType::Rpc(rpc) => rpc.r#type(),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_publications_are_listed_with_attach() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let advertised = controller_capabilities(&client).await;
    assert!(advertised.contains(&ControllerRpc::PublishUnpublishVolume));
    assert!(advertised.contains(&ControllerRpc::ListVolumesPublishedNodes));
    assert!(!advertised.contains(&ControllerRpc::Unknown), "GEN-40");

    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let id = volume.volume_id;
    client.controller_publish(&id, "test-node", mount("ext4"), false).await.unwrap();
    let published = client.get_volume(&id).await.unwrap().status.unwrap().published_node_ids;
    assert_eq!(published, ["test-node"]);
    expect_code(client.delete(&id).await, Code::FailedPrecondition);
    client.controller_unpublish(&id, "").await.unwrap();
    client.delete(&id).await.unwrap();
}
