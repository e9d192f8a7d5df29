//! What a daemon says of itself to people on its machine.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::monitor::monitor_client::MonitorClient;
use orlop_csi::proto::monitor::{ListVolumeIoRequest, ListVolumeIoResponse};
use tonic::{Code, Status};

use crate::plugin::{NODE, Plugin, Setup, code, entry, mount, new_volume};

async fn volume_io(plugin: &Plugin) -> Result<ListVolumeIoResponse, Status> {
    let mut monitor = MonitorClient::new(plugin.channel());
    monitor.list_volume_io(ListVolumeIoRequest {}).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn staged_volumes_are_listed_with_name_and_limits() {
    let plugin = Plugin::start().await;
    let wanted = v1::CreateVolumeRequest {
        mutable_parameters: entry("writeIops", "70"),
        ..new_volume("pvc-1")
    };
    let made = plugin.controller().create_volume(wanted).await.unwrap().into_inner();
    let id = made.volume.unwrap().volume_id;
    plugin.volume("not staged").await;
    let found = volume_io(&plugin).await.unwrap();
    assert_eq!((found.node_id.as_str(), found.volumes.len()), (NODE, 0));

    let request = v1::ControllerPublishVolumeRequest {
        volume_id: id.clone(),
        node_id: NODE.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    let answer = plugin.controller().controller_publish_volume(request).await;
    let request = v1::NodeStageVolumeRequest {
        volume_id: id.clone(),
        publish_context: answer.unwrap().into_inner().publish_context,
        staging_target_path: "/run/orlop-test/staging".to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    plugin.node().node_stage_volume(request).await.unwrap();
    let found = volume_io(&plugin).await.unwrap();
    assert_eq!(found.volumes.len(), 1);
    let volume = &found.volumes[0];
    assert_eq!((&volume.volume_id, volume.name.as_str()), (&id, "pvc-1"));
    assert_eq!(volume.limits.get("writeIops"), Some(&70));
    assert_eq!((volume.limits.len(), found.left_out), (1, 0));
    assert!(found.silent_pools.is_empty());
}

#[tokio::test]
async fn a_daemon_that_starts_has_no_figures_yet() {
    let plugin = Plugin::with(Setup { ready: false, ..Setup::default() }).await;
    assert_eq!(code(volume_io(&plugin).await), Code::Unavailable);
}
