//! csi.v0: the way of a volume, and that it is the same volume in csi.v1.

use orlop_csi::proto::csi::v0::controller_client::ControllerClient;
use orlop_csi::proto::csi::v0::node_client::NodeClient;
use orlop_csi::proto::csi::{v0, v1};
use orlop_model::TargetPath;
use tonic::Code;
use tonic::transport::Channel;

use crate::plugin::{MIB, NODE, Plugin, code};

pub(crate) const STAGING: &str = "/run/orlop-test/staging";
pub(crate) const TARGET: &str = "/run/orlop-test/target";

pub(crate) fn controller(plugin: &Plugin) -> ControllerClient<Channel> {
    ControllerClient::new(plugin.channel())
}

pub(crate) fn node(plugin: &Plugin) -> NodeClient<Channel> {
    NodeClient::new(plugin.channel())
}

pub(crate) fn mount(mode: i32) -> v0::VolumeCapability {
    use v0::volume_capability::{AccessMode, AccessType, MountVolume};
    v0::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode }),
    }
}

pub(crate) fn new_volume(name: &str) -> v0::CreateVolumeRequest {
    v0::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(v0::CapacityRange { required_bytes: 400 * MIB, limit_bytes: 0 }),
        volume_capabilities: vec![mount(1)],
        ..Default::default()
    }
}

pub(crate) async fn volume(plugin: &Plugin, name: &str) -> v0::Volume {
    let answer = controller(plugin).create_volume(new_volume(name)).await;
    answer.unwrap().into_inner().volume.unwrap()
}

pub(crate) fn attach(volume_id: &str) -> v0::ControllerPublishVolumeRequest {
    v0::ControllerPublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: NODE.to_owned(),
        volume_capability: Some(mount(1)),
        ..Default::default()
    }
}

pub(crate) fn detach(volume_id: &str, node_id: &str) -> v0::ControllerUnpublishVolumeRequest {
    v0::ControllerUnpublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: node_id.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn stage(volume_id: &str) -> v0::NodeStageVolumeRequest {
    v0::NodeStageVolumeRequest {
        volume_id: volume_id.to_owned(),
        staging_target_path: STAGING.to_owned(),
        volume_capability: Some(mount(1)),
        ..Default::default()
    }
}

pub(crate) fn publish(volume_id: &str) -> v0::NodePublishVolumeRequest {
    v0::NodePublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        staging_target_path: STAGING.to_owned(),
        target_path: TARGET.to_owned(),
        volume_capability: Some(mount(1)),
        ..Default::default()
    }
}

pub(crate) fn unstage(volume_id: &str) -> v0::NodeUnstageVolumeRequest {
    v0::NodeUnstageVolumeRequest {
        volume_id: volume_id.to_owned(),
        staging_target_path: STAGING.to_owned(),
    }
}

pub(crate) fn unpublish(volume_id: &str) -> v0::NodeUnpublishVolumeRequest {
    v0::NodeUnpublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        target_path: TARGET.to_owned(),
    }
}

#[tokio::test]
async fn volume_lifecycle() {
    let plugin = Plugin::start().await;
    let made = volume(&plugin, "a").await;
    assert_eq!(made, volume(&plugin, "a").await);
    assert_eq!(made.capacity_bytes, 400 * MIB);
    let id = made.id.as_str();
    let published = controller(&plugin).controller_publish_volume(attach(id)).await.unwrap();
    let info = published.into_inner().publish_info;
    assert!(!info.is_empty(), "V0-11");

    let mut node = node(&plugin);
    for _ in 0..2 {
        let mut request = stage(id);
        request.publish_info = info.clone();
        request.volume_attributes = made.attributes.clone();
        node.node_stage_volume(request).await.unwrap();
    }
    for _ in 0..2 {
        let mut request = publish(id);
        request.publish_info = info.clone();
        request.volume_attributes = made.attributes.clone();
        node.node_publish_volume(request).await.unwrap();
    }
    let target = TargetPath::parse("target", TARGET).unwrap();
    assert!(plugin.host.mounts().contains(&target));
    for _ in 0..2 {
        node.node_unpublish_volume(unpublish(id)).await.unwrap();
    }
    assert!(!plugin.host.mounts().contains(&target));
    assert!(plugin.host.has_target(&target), "V0-29: whose path it is, keeps it");
    for _ in 0..2 {
        node.node_unstage_volume(unstage(id)).await.unwrap();
    }
    let mut controller = controller(&plugin);
    for _ in 0..2 {
        controller.controller_unpublish_volume(detach(id, NODE)).await.unwrap();
    }
    let delete = || v0::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    for _ in 0..2 {
        controller.delete_volume(delete()).await.unwrap();
    }
    let gone = controller.controller_unpublish_volume(detach(id, NODE)).await;
    assert_eq!(code(gone), Code::NotFound, "V0-36");
    for _ in 0..2 {
        node.node_unpublish_volume(unpublish(id)).await.unwrap();
        node.node_unstage_volume(unstage(id)).await.unwrap();
    }
}

#[tokio::test]
async fn both_versions_see_the_same_volumes() {
    let plugin = Plugin::start().await;
    let old = volume(&plugin, "old").await;
    let new = plugin.volume("new").await;
    let get = v1::ControllerGetVolumeRequest { volume_id: old.id.clone() };
    let seen = plugin.controller().controller_get_volume(get).await.unwrap().into_inner();
    let seen = seen.volume.unwrap();
    assert_eq!((seen.capacity_bytes, &seen.volume_context), (old.capacity_bytes, &old.attributes));
    assert_eq!(plugin.volume("old").await.volume_id, old.id, "one name, one volume");

    let request = v0::ListVolumesRequest::default();
    let listed = controller(&plugin).list_volumes(request).await.unwrap().into_inner();
    let mut ids: Vec<_> =
        listed.entries.into_iter().map(|entry| entry.volume.unwrap().id).collect();
    let mut expected = vec![old.id, new.volume_id.clone()];
    ids.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ids, expected);

    node(&plugin).node_stage_volume(stage(&new.volume_id)).await.unwrap();
    let request = v1::NodeUnstageVolumeRequest {
        volume_id: new.volume_id,
        staging_target_path: STAGING.to_owned(),
    };
    plugin.node().node_unstage_volume(request).await.unwrap();
    assert!(plugin.host.mounts().is_empty());
}

#[tokio::test]
async fn lists_come_in_pages() {
    let plugin = Plugin::start().await;
    for name in ["a", "b", "c"] {
        volume(&plugin, name).await;
    }
    let mut client = controller(&plugin);
    let mut page = async |max_entries, token: &str| {
        let starting_token = token.to_owned();
        let request = v0::ListVolumesRequest { max_entries, starting_token };
        client.list_volumes(request).await.map(tonic::Response::into_inner)
    };
    let first = page(2, "").await.unwrap();
    let second = page(2, &first.next_token).await.unwrap();
    assert_eq!((first.entries.len(), second.entries.len()), (2, 1));
    assert!(second.next_token.is_empty());
    assert_eq!(code(page(-1, "").await), Code::InvalidArgument);
    assert_eq!(code(page(0, "garbage").await), Code::Aborted, "V0-38");
}
