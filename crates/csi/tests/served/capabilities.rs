//! What is advertised is what works, in every mode and configuration.

use orlop_csi::Mode;
use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use orlop_csi::proto::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use orlop_model::Error;
use tonic::Code;

use crate::plugin::{NO_VOLUME, NODE, Plugin, Setup, code, entry, mount, new_volume, noticed};

async fn controller_rpcs(plugin: &Plugin) -> Vec<ControllerRpc> {
    use v1::controller_service_capability::Type;
    let request = v1::ControllerGetCapabilitiesRequest {};
    let answer = plugin.controller().controller_get_capabilities(request).await;
    let rpc = |capability: v1::ControllerServiceCapability| match capability.r#type {
        Some(Type::Rpc(rpc)) => rpc.r#type(),
        None => ControllerRpc::Unknown,
    };
    let capabilities = answer.unwrap().into_inner().capabilities;
    capabilities.into_iter().map(rpc).collect()
}

async fn plugin_capabilities(plugin: &Plugin) -> Vec<v1::PluginCapability> {
    let request = v1::GetPluginCapabilitiesRequest {};
    let answer = plugin.identity().get_plugin_capabilities(request).await;
    answer.unwrap().into_inner().capabilities
}

async fn publish_code(plugin: &Plugin) -> Code {
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: NO_VOLUME.to_owned(),
        node_id: NODE.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    code(plugin.controller().controller_publish_volume(request).await)
}

async fn unpublish_code(plugin: &Plugin) -> Code {
    let request = v1::ControllerUnpublishVolumeRequest {
        volume_id: "not-ours".to_owned(),
        ..Default::default()
    };
    code(plugin.controller().controller_unpublish_volume(request).await)
}

async fn modify_code(plugin: &Plugin) -> Code {
    let request = v1::ControllerModifyVolumeRequest {
        volume_id: NO_VOLUME.to_owned(),
        mutable_parameters: entry("readIops", "1"),
        ..Default::default()
    };
    code(plugin.controller().controller_modify_volume(request).await)
}

#[tokio::test]
async fn group_snapshots_are_served_iff_advertised() {
    use v1::group_controller_client::GroupControllerClient;
    use v1::plugin_capability::{Service, Type, service};
    let groups = Type::Service(Service { r#type: service::Type::GroupControllerService.into() });
    for group_snapshots in [true, false] {
        let plugin = Plugin::with(Setup { group_snapshots, ..Setup::default() }).await;
        let advertised = plugin_capabilities(&plugin).await;
        let offered = advertised.iter().any(|each| each.r#type.as_ref() == Some(&groups));
        assert_eq!(offered, group_snapshots);
        let request = v1::GroupControllerGetCapabilitiesRequest {};
        let mut client = GroupControllerClient::new(plugin.channel());
        let answer = client.group_controller_get_capabilities(request).await;
        let expected = if group_snapshots { Code::Ok } else { Code::Unimplemented };
        assert_eq!(code(answer), expected);
    }
}

#[tokio::test]
async fn publish_capability_follows_the_attach_setting() {
    let with_attach = [
        ControllerRpc::PublishUnpublishVolume,
        ControllerRpc::PublishReadonly,
        ControllerRpc::ListVolumesPublishedNodes,
    ];
    for attach in [true, false] {
        let plugin = Plugin::with(Setup { attach, ..Setup::default() }).await;
        let offered = controller_rpcs(&plugin).await;
        assert!(!offered.contains(&ControllerRpc::Unknown));
        for rpc in with_attach {
            assert_eq!(offered.contains(&rpc), attach, "{rpc:?}");
        }
        let (published, unpublished) = match attach {
            true => (Code::NotFound, Code::Ok),
            false => (Code::Unimplemented, Code::Unimplemented),
        };
        assert_eq!(publish_code(&plugin).await, published);
        assert_eq!(unpublish_code(&plugin).await, unpublished);
    }
}

#[tokio::test]
async fn modify_capability_follows_working_limits() {
    for limits in [true, false] {
        let plugin = Plugin::with(Setup { limits, ..Setup::default() }).await;
        let offered = controller_rpcs(&plugin).await;
        assert_eq!(offered.contains(&ControllerRpc::ModifyVolume), limits);
        let mut request = new_volume("limited");
        request.mutable_parameters = entry("writeIops", "10");
        let created = code(plugin.controller().create_volume(request).await);
        let (modified, made) = match limits {
            true => (Code::NotFound, Code::Ok),
            // GEN-22, CV-21
            false => (Code::Unimplemented, Code::InvalidArgument),
        };
        assert_eq!(modify_code(&plugin).await, modified);
        assert_eq!(created, made);
    }
}

#[tokio::test]
async fn node_reports_its_capabilities() {
    use v1::node_service_capability::Type;
    let plugin = Plugin::start().await;
    let request = v1::NodeGetCapabilitiesRequest {};
    let answer = plugin.node().node_get_capabilities(request).await.unwrap();
    let rpcs = answer.into_inner().capabilities.into_iter().map(|each| match each.r#type {
        Some(Type::Rpc(rpc)) => rpc.r#type(),
        None => NodeRpc::Unknown,
    });
    assert_eq!(
        rpcs.collect::<Vec<_>>(),
        [
            NodeRpc::StageUnstageVolume,
            NodeRpc::GetVolumeStats,
            NodeRpc::ExpandVolume,
            NodeRpc::VolumeCondition,
            NodeRpc::SingleNodeMultiWriter,
            NodeRpc::VolumeMountGroup,
            NodeRpc::GetVolumeHealth,
            NodeRpc::GetStorageHealth,
        ]
    );
}

#[tokio::test]
async fn modes_share_identity_and_serve_their_own_services() {
    let all = plugin_capabilities(&Plugin::start().await).await;
    assert_eq!(all.len(), 6);
    for (mode, controller, node) in [
        (Mode::Controller, Code::Ok, Code::Unimplemented),
        (Mode::Node, Code::Unimplemented, Code::Ok),
        (Mode::All, Code::Ok, Code::Ok),
    ] {
        let plugin = Plugin::with(Setup { mode, ..Setup::default() }).await;
        assert_eq!(plugin_capabilities(&plugin).await, all, "ID-11");
        let request = v1::ControllerGetCapabilitiesRequest {};
        let answer = plugin.controller().controller_get_capabilities(request).await;
        assert_eq!(code(answer), controller, "{mode:?}");
        let request = v1::NodeGetCapabilitiesRequest {};
        let answer = plugin.node().node_get_capabilities(request).await;
        assert_eq!(code(answer), node, "{mode:?}");
    }
}

#[tokio::test]
async fn the_plugin_has_a_name_and_a_version() {
    let plugin = Plugin::start().await;
    let answer = plugin.identity().get_plugin_info(v1::GetPluginInfoRequest {}).await;
    let info = answer.unwrap().into_inner();
    assert_eq!((info.name.as_str(), info.vendor_version.as_str()), ("orlop.example", "1.2.3"));
}

async fn probe(plugin: &Plugin) -> Result<Option<bool>, tonic::Status> {
    let answer = plugin.identity().probe(v1::ProbeRequest {}).await;
    answer.map(|answer| answer.into_inner().ready)
}

#[tokio::test]
async fn starting_plugin_is_not_ready_but_has_an_identity() {
    let plugin = Plugin::with(Setup { ready: false, ..Setup::default() }).await;
    assert_eq!(probe(&plugin).await.unwrap(), Some(false));
    let answer = plugin.controller().create_volume(new_volume("early")).await;
    assert_eq!(code(answer), Code::Unavailable);
    let answer = plugin.node().node_get_info(v1::NodeGetInfoRequest {}).await;
    let info = answer.unwrap().into_inner();
    assert_eq!((info.node_id.as_str(), info.max_volumes_per_node), (NODE, 8));
    assert_eq!(info.accessible_topology.unwrap().segments, entry("orlop.example/node", NODE));
}

#[tokio::test]
async fn unhealthy_pool_fails_probe_with_its_reason() {
    let plugin = Plugin::start().await;
    assert_eq!(probe(&plugin).await.unwrap(), Some(true));
    plugin.pool.fail_next("check_health", Error::failed("read pool", "the disk is gone"));
    let status = noticed(Result::is_ok, || probe(&plugin)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("the disk is gone"), "{}", status.message());
    assert_eq!(probe(&plugin).await.unwrap(), Some(true));
}

/// It may need no restart, but time: the same as while it starts.
#[tokio::test]
async fn absent_pool_is_waited_for() {
    let plugin = Plugin::start().await;
    let unreachable = Error::unreachable("read pool", "no answer");
    assert_eq!(probe(&plugin).await.unwrap(), Some(true));
    plugin.pool.fail_next("check_health", unreachable);
    let is_ready = |answer: &Result<_, _>| matches!(answer, Ok(Some(true)));
    assert_eq!(noticed(is_ready, || probe(&plugin)).await.unwrap(), Some(false));
    assert_eq!(probe(&plugin).await.unwrap(), Some(true));
}
