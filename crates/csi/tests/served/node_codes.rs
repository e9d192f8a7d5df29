//! What the node's calls answer, good and bad.

use std::collections::BTreeMap;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::volume_usage::Unit;
use tonic::{Code, Status};

use crate::plugin::{MIB, NO_VOLUME, NODE, Plugin, Setup, code, entry, mount, mount_of, range};

const STAGING: &str = "/run/orlop-test/staging";
const TARGET: &str = "/run/orlop-test/target";

fn stage(volume_id: &str) -> v1::NodeStageVolumeRequest {
    v1::NodeStageVolumeRequest {
        volume_id: volume_id.to_owned(),
        staging_target_path: STAGING.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    }
}

fn publish(volume_id: &str) -> v1::NodePublishVolumeRequest {
    v1::NodePublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        staging_target_path: STAGING.to_owned(),
        target_path: TARGET.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    }
}

fn stats(volume_id: &str, path: &str) -> v1::NodeGetVolumeStatsRequest {
    v1::NodeGetVolumeStatsRequest {
        volume_id: volume_id.to_owned(),
        volume_path: path.to_owned(),
        ..Default::default()
    }
}

/// A volume that was taken to where a workload would use it.
async fn published(plugin: &Plugin) -> String {
    let volume_id = plugin.volume("a").await.volume_id;
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: volume_id.clone(),
        node_id: NODE.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    let answer = plugin.controller().controller_publish_volume(request).await;
    let publish_context = answer.unwrap().into_inner().publish_context;
    let mut request = stage(&volume_id);
    request.publish_context = publish_context.clone();
    plugin.node().node_stage_volume(request).await.unwrap();
    let mut request = publish(&volume_id);
    request.publish_context = publish_context;
    plugin.node().node_publish_volume(request).await.unwrap();
    volume_id
}

#[tokio::test]
async fn volume_lifecycle() {
    let plugin = Plugin::start().await;
    let volume_id = published(&plugin).await;
    let mut node = plugin.node();
    let answer = node.node_get_volume_stats(stats(&volume_id, TARGET)).await.unwrap();
    let answer = answer.into_inner();
    assert_eq!(answer.usage[0].unit(), Unit::Bytes);
    assert!(!answer.volume_condition.unwrap().message.is_empty());

    let unpublish = || v1::NodeUnpublishVolumeRequest {
        volume_id: volume_id.clone(),
        target_path: TARGET.to_owned(),
    };
    let unstage = || v1::NodeUnstageVolumeRequest {
        volume_id: volume_id.clone(),
        staging_target_path: STAGING.to_owned(),
    };
    for _ in 0..2 {
        node.node_unpublish_volume(unpublish()).await.unwrap();
    }
    for _ in 0..2 {
        node.node_unstage_volume(unstage()).await.unwrap();
    }
    let gone = node.node_get_volume_stats(stats(&volume_id, TARGET)).await;
    assert_eq!(code(gone), Code::NotFound, "ST-05");
}

#[tokio::test]
async fn wrong_path_is_not_found_even_if_relative() {
    let plugin = Plugin::start().await;
    let volume_id = published(&plugin).await;
    let mut node = plugin.node();
    for id in [volume_id.as_str(), NO_VOLUME, "fake-vol-id"] {
        for path in ["some/path", "/run/orlop-test/elsewhere"] {
            let answer = node.node_get_volume_stats(stats(id, path)).await;
            assert_eq!(code(answer), Code::NotFound, "{id} {path}");
            let request = v1::NodeExpandVolumeRequest {
                volume_id: id.to_owned(),
                volume_path: path.to_owned(),
                ..Default::default()
            };
            let answer = node.node_expand_volume(request).await;
            assert_eq!(code(answer), Code::NotFound, "{id} {path}");
        }
    }
}

#[tokio::test]
async fn expansion_is_seen_by_the_node() {
    let plugin = Plugin::start().await;
    let volume_id = published(&plugin).await;
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: volume_id.clone(),
        capacity_range: Some(range(800 * MIB, 0)),
        ..Default::default()
    };
    plugin.controller().controller_expand_volume(request).await.unwrap();
    let expand = |capability| v1::NodeExpandVolumeRequest {
        volume_id: volume_id.clone(),
        volume_path: TARGET.to_owned(),
        volume_capability: capability,
        ..Default::default()
    };
    let grown = plugin.node().node_expand_volume(expand(None)).await.unwrap();
    assert_eq!(grown.into_inner().capacity_bytes, 800 * MIB);
    let unsupported = plugin.node().node_expand_volume(expand(Some(mount_of("nosuchfs")))).await;
    assert_eq!(code(unsupported), Code::InvalidArgument, "NE-13");
}

async fn stage_code(plugin: &Plugin, change: impl FnOnce(&mut v1::NodeStageVolumeRequest)) -> Code {
    let mut request = stage(NO_VOLUME);
    change(&mut request);
    code(plugin.node().node_stage_volume(request).await)
}

#[tokio::test]
async fn stage_errors_have_their_codes() {
    let plugin = Plugin::start().await;
    assert_eq!(stage_code(&plugin, |_| ()).await, Code::NotFound, "NS-11");
    let foreign = stage_code(&plugin, |r| r.volume_id = "fake-vol-id".to_owned()).await;
    assert_eq!(foreign, Code::NotFound);
    let relative = stage_code(&plugin, |r| r.staging_target_path = "rel/path".to_owned()).await;
    assert_eq!(relative, Code::InvalidArgument, "NS-07");
    let nosuchfs = stage_code(&plugin, |r| r.volume_capability = Some(mount_of("nosuchfs"))).await;
    assert_eq!(nosuchfs, Code::FailedPrecondition, "AM-04");
    let stray = stage_code(&plugin, |r| r.publish_context = entry("device", "/dev/mock")).await;
    assert_eq!(stray, Code::InvalidArgument);
    let secret = stage_code(&plugin, |r| r.secrets = entry("a b", "c")).await;
    assert_eq!(secret, Code::InvalidArgument, "GEN-31");

    let detached = Plugin::with(Setup { attach: false, ..Setup::default() }).await;
    let context = stage_code(&detached, |r| r.publish_context = entry("readonly", "true")).await;
    assert_eq!(context, Code::InvalidArgument, "NS-15");
}

async fn publish_inline(plugin: &Plugin, context: &[(&str, &str)]) -> Result<(), Status> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let mut context: BTreeMap<_, _> = context.iter().map(owned).collect();
    context.insert("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned());
    let mut request = publish("csi-0123456789abcdef");
    request.staging_target_path.clear();
    request.volume_context = context;
    plugin.node().node_publish_volume(request).await.map(drop)
}

#[tokio::test]
async fn publish_errors_have_their_codes() {
    let plugin = Plugin::start().await;
    let mut node = plugin.node();
    let mut unstaged = publish(NO_VOLUME);
    unstaged.staging_target_path.clear();
    assert_eq!(code(node.node_publish_volume(unstaged).await), Code::FailedPrecondition, "NP-07");
    let mut relative = publish(NO_VOLUME);
    relative.target_path = "rel/path".to_owned();
    assert_eq!(code(node.node_publish_volume(relative).await), Code::InvalidArgument, "NP-08");
    assert_eq!(code(node.node_publish_volume(publish(NO_VOLUME)).await), Code::NotFound, "NP-15");
    assert_eq!(code(node.node_publish_volume(publish("fake")).await), Code::NotFound, "NP-15");

    let volume_id = plugin.volume("a").await.volume_id;
    let not_staged = node.node_publish_volume(publish(&volume_id)).await;
    assert_eq!(code(not_staged), Code::FailedPrecondition, "NP-38");
}

#[tokio::test]
async fn an_inline_volume_lives_as_long_as_its_publication() {
    use orlop_model::Pool;
    let plugin = Plugin::start().await;
    assert_eq!(code(publish_inline(&plugin, &[("size", "lots")]).await), Code::InvalidArgument);
    assert_eq!(code(publish_inline(&plugin, &[("colour", "red")]).await), Code::InvalidArgument);
    assert!(plugin.pool.catalogue().volumes(None, 0).unwrap().is_empty());

    let context = [("size", "500Mi"), ("csi.storage.k8s.io/pod.name", "web-0")];
    publish_inline(&plugin, &context).await.unwrap();
    let volumes = plugin.pool.catalogue().volumes(None, 0).unwrap();
    let record = volumes[0].1.as_ref().unwrap();
    assert_eq!((record.capacity_bytes, record.ephemeral), (500 << 20, true));

    let request = v1::NodeUnpublishVolumeRequest {
        volume_id: "csi-0123456789abcdef".to_owned(),
        target_path: TARGET.to_owned(),
    };
    plugin.node().node_unpublish_volume(request).await.unwrap();
    assert!(plugin.pool.catalogue().volumes(None, 0).unwrap().is_empty());
}
