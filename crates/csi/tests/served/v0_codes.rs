//! csi.v0: what is offered, and what is refused how.

use orlop_csi::Mode;
use orlop_csi::proto::csi::v0;
use orlop_csi::proto::csi::v0::identity_client::IdentityClient;
use orlop_model::Error;
use tonic::{Code, Status};

use crate::plugin::{NO_VOLUME, NODE, Plugin, Setup, code, entry, noticed};
use crate::required_fields::needs;
use crate::v0_volumes::{
    attach, controller, detach, mount, new_volume, node, publish, stage, unpublish, unstage, volume,
};

async fn probe(plugin: &Plugin) -> Result<(), Status> {
    IdentityClient::new(plugin.channel()).probe(v0::ProbeRequest {}).await.map(drop)
}

#[tokio::test]
async fn v0_identity_matches_v1_with_v0_capabilities_only() {
    let plugin = Plugin::start().await;
    let mut identity = IdentityClient::new(plugin.channel());
    let info = identity.get_plugin_info(v0::GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.name.as_str(), info.vendor_version.as_str()), ("orlop.example", "1.2.3"));
    let request = v0::GetPluginCapabilitiesRequest {};
    let offered = identity.get_plugin_capabilities(request).await.unwrap().into_inner();
    assert_eq!(offered.capabilities.len(), 1, "V0-21");
    let id = node(&plugin).node_get_id(v0::NodeGetIdRequest {}).await.unwrap().into_inner();
    assert_eq!(id.node_id, NODE, "V0-05");

    use v0::node_service_capability::{Type, rpc};
    let request = v0::NodeGetCapabilitiesRequest {};
    let offered = node(&plugin).node_get_capabilities(request).await.unwrap().into_inner();
    let rpcs: Vec<_> = offered
        .capabilities
        .into_iter()
        .map(|each| match each.r#type {
            Some(Type::Rpc(rpc)) => rpc.r#type(),
            None => rpc::Type::Unknown,
        })
        .collect();
    assert_eq!(rpcs, [rpc::Type::StageUnstageVolume], "V0-23");
}

#[tokio::test]
async fn publish_capability_follows_the_attach_setting() {
    use v0::controller_service_capability::{Type, rpc};
    for on in [true, false] {
        let plugin = Plugin::with(Setup { attach: on, ..Setup::default() }).await;
        let request = v0::ControllerGetCapabilitiesRequest {};
        let offered = controller(&plugin).controller_get_capabilities(request).await.unwrap();
        let mut rpcs: Vec<i32> = offered
            .into_inner()
            .capabilities
            .into_iter()
            .map(|each| match each.r#type {
                Some(Type::Rpc(rpc)) => rpc.r#type,
                None => rpc::Type::Unknown.into(),
            })
            .collect();
        rpcs.sort_unstable();
        let expected = if on { vec![1, 2, 3, 4] } else { vec![1, 3, 4] };
        assert_eq!(rpcs, expected, "V0-22");
        let expected = if on { Code::NotFound } else { Code::Unimplemented };
        let answer = controller(&plugin).controller_publish_volume(attach(NO_VOLUME)).await;
        assert_eq!(code(answer), expected);
        let answer = controller(&plugin).controller_unpublish_volume(detach(NO_VOLUME, NODE)).await;
        assert_eq!(code(answer), expected);
    }
}

#[tokio::test]
async fn modes_and_health() {
    for (mode, on_controller, on_node) in [
        (Mode::Controller, Code::Ok, Code::Unimplemented),
        (Mode::Node, Code::Unimplemented, Code::Ok),
    ] {
        let plugin = Plugin::with(Setup { mode, ..Setup::default() }).await;
        let listed = controller(&plugin).list_volumes(v0::ListVolumesRequest::default()).await;
        assert_eq!(code(listed), on_controller);
        let id = node(&plugin).node_get_id(v0::NodeGetIdRequest {}).await;
        assert_eq!(code(id), on_node, "V0-06");
    }
    let plugin = Plugin::start().await;
    assert_eq!(code(probe(&plugin).await), Code::Ok);
    plugin.pool.fail_next("check_health", Error::failed("read pool", "the disk is gone"));
    let failed = noticed(Result::is_ok, || probe(&plugin)).await;
    assert_eq!(code(failed), Code::FailedPrecondition, "V0-43");
    let starting = Plugin::with(Setup { ready: false, ..Setup::default() }).await;
    assert_eq!(code(probe(&starting).await), Code::Unavailable, "V0-19");
}

#[tokio::test]
async fn required_fields_come_first() {
    let plugin = Plugin::start().await;
    needs!(controller(&plugin), create_volume(new_volume("a")), [name, volume_capabilities]);
    needs!(
        controller(&plugin),
        controller_publish_volume(attach(NO_VOLUME)),
        [volume_id, node_id, volume_capability]
    );
    needs!(controller(&plugin), controller_unpublish_volume(detach(NO_VOLUME, NODE)), [volume_id]);
    needs!(
        node(&plugin),
        node_stage_volume(stage(NO_VOLUME)),
        [volume_id, staging_target_path, volume_capability]
    );
    needs!(
        node(&plugin),
        node_unstage_volume(unstage(NO_VOLUME)),
        [volume_id, staging_target_path]
    );
    needs!(
        node(&plugin),
        node_publish_volume(publish(NO_VOLUME)),
        [volume_id, target_path, volume_capability]
    );
    needs!(node(&plugin), node_unpublish_volume(unpublish(NO_VOLUME)), [volume_id, target_path]);
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let plugin = Plugin::start().await;
    let id = volume(&plugin, "a").await.id;
    for missing in [NO_VOLUME, "fake"] {
        let mut client = controller(&plugin);
        let answer = client.controller_publish_volume(attach(missing)).await;
        assert_eq!(code(answer), Code::NotFound, "V0-35");
        let answer = client.controller_unpublish_volume(detach(missing, "")).await;
        assert_eq!(code(answer), Code::NotFound, "V0-36");
        let answer = client.validate_volume_capabilities(validate(missing, vec![mount(1)])).await;
        assert_eq!(code(answer), Code::NotFound, "V0-37");
        let mut client = node(&plugin);
        assert_eq!(code(client.node_stage_volume(stage(missing)).await), Code::NotFound, "V0-39");
        let answer = client.node_publish_volume(publish(missing)).await;
        assert_eq!(code(answer), Code::NotFound, "V0-41");
    }
    let mut client = node(&plugin);
    assert_eq!(code(client.node_unstage_volume(unstage("fake")).await), Code::NotFound, "V0-40");
    let answer = client.node_unpublish_volume(unpublish("fake")).await;
    assert_eq!(code(answer), Code::NotFound, "V0-42");
    // Also when it would be an inline volume in csi.v1.
    let mut inline = publish("fake");
    inline.volume_attributes = entry("csi.storage.k8s.io/ephemeral", "true");
    assert_eq!(code(client.node_publish_volume(inline).await), Code::NotFound);
    let mut client = controller(&plugin);
    client.controller_publish_volume(attach(&id)).await.unwrap();
    let detached = client.controller_unpublish_volume(detach(&id, "")).await;
    assert_eq!(code(detached), Code::Ok);
}

fn validate(
    volume_id: &str,
    volume_capabilities: Vec<v0::VolumeCapability>,
) -> v0::ValidateVolumeCapabilitiesRequest {
    v0::ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id.to_owned(),
        volume_capabilities,
        ..Default::default()
    }
}

#[tokio::test]
async fn validation_is_yes_or_no_with_a_reason() {
    let plugin = Plugin::start().await;
    let id = volume(&plugin, "a").await.id;
    let mut client = controller(&plugin);
    let mut ask = async |request| {
        client.validate_volume_capabilities(request).await.map(tonic::Response::into_inner)
    };
    assert!(ask(validate(&id, vec![mount(1)])).await.unwrap().supported);
    let no = ask(validate(&id, vec![mount(1), mount(5)])).await.unwrap();
    assert!(!no.supported && !no.message.is_empty(), "V0-18");
    let mut wrong = validate(&id, vec![mount(1)]);
    wrong.volume_attributes = entry("pool", "another");
    assert!(!ask(wrong).await.unwrap().supported);
}

#[tokio::test]
async fn v0_limits_are_enforced() {
    let plugin = Plugin::start().await;
    let id = volume(&plugin, "a").await.id;
    let mut request = new_volume("later-modes");
    for mode in [6, 7, 99] {
        request.volume_capabilities = vec![mount(mode)];
        let refused = controller(&plugin).create_volume(request.clone()).await;
        assert_eq!(code(refused), Code::InvalidArgument, "V0-24");
    }
    let long = || format!("/{}", "x".repeat(128));
    let mut client = node(&plugin);
    let request = v0::NodeStageVolumeRequest { staging_target_path: long(), ..stage(&id) };
    assert_eq!(code(client.node_stage_volume(request).await), Code::InvalidArgument, "V0-30");
    let request = v0::NodeUnstageVolumeRequest { staging_target_path: long(), ..unstage(&id) };
    assert_eq!(code(client.node_unstage_volume(request).await), Code::InvalidArgument, "V0-30");
    let request = v0::NodePublishVolumeRequest { target_path: long(), ..publish(&id) };
    assert_eq!(code(client.node_publish_volume(request).await), Code::InvalidArgument, "V0-30");
    let request = v0::NodeUnpublishVolumeRequest { target_path: long(), ..unpublish(&id) };
    assert_eq!(code(client.node_unpublish_volume(request).await), Code::InvalidArgument, "V0-30");
    let request =
        v0::NodePublishVolumeRequest { staging_target_path: String::new(), ..publish(&id) };
    assert_eq!(code(client.node_publish_volume(request).await), Code::FailedPrecondition, "V0-41");
}

#[tokio::test]
async fn errors_name_v0_fields() {
    let plugin = Plugin::start().await;
    let id = volume(&plugin, "a").await.id;
    let mut request = stage(&id);
    request.node_stage_secrets = entry("not a key", "x");
    let status = node(&plugin).node_stage_volume(request).await.unwrap_err();
    assert!(status.message().starts_with("node_stage_secrets:"), "{}", status.message());
    let mut request = stage(&id);
    request.volume_attributes = entry("pool", "another");
    let status = node(&plugin).node_stage_volume(request).await.unwrap_err();
    assert!(status.message().starts_with("volume_attributes:"), "{}", status.message());
    let mut request = stage(&id);
    request.publish_info = entry("colour", "red");
    let status = node(&plugin).node_stage_volume(request).await.unwrap_err();
    assert!(status.message().starts_with("publish_info:"), "{}", status.message());
}

#[tokio::test]
async fn capacity_matches_v1() {
    use orlop_csi::proto::csi::v1;
    let plugin = Plugin::start().await;
    let old = controller(&plugin).get_capacity(v0::GetCapacityRequest::default()).await.unwrap();
    let new = plugin.controller().get_capacity(v1::GetCapacityRequest::default()).await.unwrap();
    assert!(old.get_ref().available_capacity > 0);
    assert_eq!(old.into_inner().available_capacity, new.into_inner().available_capacity);
}
