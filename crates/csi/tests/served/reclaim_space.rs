//! CSI-Addons: giving space back.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::reclaimspace as rs;
use orlop_csi::proto::reclaimspace::reclaim_space_controller_client::ReclaimSpaceControllerClient;
use orlop_csi::proto::reclaimspace::reclaim_space_node_client::ReclaimSpaceNodeClient;
use orlop_model::{ByteRange, Error, VolumeId};
use tonic::Code;
use tonic::transport::Channel;

use crate::plugin::{NO_VOLUME, Plugin, code, mount};
use crate::required_fields::needs;

const STAGING: &str = "/run/orlop-test/staging";

fn controller(plugin: &Plugin) -> ReclaimSpaceControllerClient<Channel> {
    ReclaimSpaceControllerClient::new(plugin.channel())
}

fn node(plugin: &Plugin) -> ReclaimSpaceNodeClient<Channel> {
    ReclaimSpaceNodeClient::new(plugin.channel())
}

fn on_pool(volume_id: &str) -> rs::ControllerReclaimSpaceRequest {
    rs::ControllerReclaimSpaceRequest { volume_id: volume_id.to_owned(), ..Default::default() }
}

fn on_node(volume_id: &str, volume_path: &str) -> rs::NodeReclaimSpaceRequest {
    rs::NodeReclaimSpaceRequest {
        volume_id: volume_id.to_owned(),
        volume_path: volume_path.to_owned(),
        ..Default::default()
    }
}

async fn staged(plugin: &Plugin) -> String {
    let volume_id = plugin.volume("a").await.volume_id;
    let request = v1::NodeStageVolumeRequest {
        volume_id: volume_id.clone(),
        staging_target_path: STAGING.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    plugin.node().node_stage_volume(request).await.unwrap();
    volume_id
}

#[tokio::test]
async fn controller_reclaim_frees_zeroes_and_reports_usage() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let id: VolumeId = volume.volume_id.parse().unwrap();
    plugin.pool.write_blocks(&id, ByteRange { start: 0, length: 1 << 20 }).unwrap();
    plugin.pool.write_zeroes(&id, ByteRange { start: 4096, length: 8192 }).unwrap();
    let mut request = on_pool(&volume.volume_id);
    // As the sidecar does it.
    request.parameters = volume.volume_context.clone();
    let answer = controller(&plugin).controller_reclaim_space(request).await.unwrap().into_inner();
    let (before, after) = (answer.pre_usage.unwrap(), answer.post_usage.unwrap());
    assert_eq!((before.usage_bytes, after.usage_bytes), (1 << 20, (1 << 20) - 8192), "RS-08");
}

#[tokio::test]
async fn node_reclaim_trims_the_mounted_volume() {
    let plugin = Plugin::start().await;
    let volume_id = staged(&plugin).await;
    let answer = node(&plugin).node_reclaim_space(on_node(&volume_id, STAGING)).await.unwrap();
    let answer = answer.into_inner();
    assert!(answer.pre_usage.is_some() && answer.post_usage.is_some());

    // As the sidecar does it.
    let mut request = on_node(&volume_id, "");
    request.staging_target_path = STAGING.to_owned();
    request.volume_capability = Some(mount());
    assert_eq!(code(node(&plugin).node_reclaim_space(request).await), Code::Ok);
    assert_eq!(plugin.host.count(orlop_host::memory::Op::Trim), 2);

    let offline = controller(&plugin).controller_reclaim_space(on_pool(&volume_id)).await;
    assert_eq!(code(offline), Code::FailedPrecondition);
}

#[tokio::test]
async fn every_error_has_its_code() {
    let plugin = Plugin::start().await;
    needs!(controller(&plugin), controller_reclaim_space(on_pool(NO_VOLUME)), [volume_id]);
    needs!(node(&plugin), node_reclaim_space(on_node(NO_VOLUME, "/x")), [volume_id, volume_path]);
    for missing in [NO_VOLUME, "fake"] {
        let answer = controller(&plugin).controller_reclaim_space(on_pool(missing)).await;
        assert_eq!(code(answer), Code::NotFound, "RS-03");
        let answer = node(&plugin).node_reclaim_space(on_node(missing, STAGING)).await;
        assert_eq!(code(answer), Code::NotFound, "RS-03");
    }
    let volume_id = staged(&plugin).await;
    let elsewhere = node(&plugin).node_reclaim_space(on_node(&volume_id, "/elsewhere")).await;
    assert_eq!(code(elsewhere), Code::NotFound);
    plugin.pool.fail_next("used_bytes", Error::failed("ask for the size", "EIO"));
    let failed = node(&plugin).node_reclaim_space(on_node(&volume_id, STAGING)).await;
    assert_eq!(code(failed), Code::Unknown, "RS-07");
}
