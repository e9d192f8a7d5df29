//! What a daemon says of itself to people on its machine.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::monitor::monitor_client::MonitorClient;
use orlop_csi::proto::monitor::{
    ListFootprintsRequest, ListPoolsRequest, ListSnapshotNamesRequest, ListVolumeIoRequest,
    ListVolumeIoResponse, ListVolumeUsageRequest,
};
use orlop_model::{ByteRange, Condition, HealthReason};
use tonic::{Code, Status};

use crate::plugin::{NO_VOLUME, NODE, Plugin, Setup, code, entry, mount, new_volume};

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

#[tokio::test]
async fn what_came_from_a_volume_is_measured() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("pvc-1").await;
    let range = ByteRange { start: 0, length: 8192 };
    plugin.pool.write_blocks(&volume.volume_id.parse().unwrap(), range).unwrap();
    let snapshot = plugin.snapshot(&volume, "monday").await;
    let mut monitor = MonitorClient::new(plugin.channel());
    let request = |id: &str| ListFootprintsRequest { volume_id: id.to_owned() };
    let found = monitor.list_footprints(request(&volume.volume_id)).await.unwrap().into_inner();
    let sizes: Vec<_> = found
        .objects
        .iter()
        .map(|it| (it.id.as_str(), it.taken_bytes, it.exclusive_bytes))
        .collect();
    let expected =
        [(volume.volume_id.as_str(), 8192, 8192), (snapshot.snapshot_id.as_str(), 8192, 8192)];
    assert_eq!(sizes, expected);
    assert_eq!(code(monitor.list_footprints(request(NO_VOLUME)).await), Code::NotFound);
    assert_eq!(code(monitor.list_footprints(request("")).await), Code::InvalidArgument);
}

#[tokio::test]
async fn pools_say_how_they_are() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("pvc-1").await;
    plugin.snapshot(&volume, "monday").await;
    plugin.volume("pvc-2").await;
    let full = Condition::abnormal(HealthReason::PoolFull, "below the floor");
    plugin.pool.set_condition(&volume.volume_id.parse().unwrap(), full);
    let mut monitor = MonitorClient::new(plugin.channel());
    let found = monitor.list_pools(ListPoolsRequest {}).await.unwrap().into_inner();
    assert_eq!((found.node_id.as_str(), found.pools.len()), (NODE, 1));
    let pool = &found.pools[0];
    assert_eq!(pool.state, "up");
    assert_eq!((pool.volumes, pool.abnormal_volumes), (Some(2), Some(1)));
    assert_eq!((pool.snapshots, pool.abnormal_snapshots), (Some(1), Some(0)));
    assert_eq!(pool.volumes_by_reason.get("PoolFull"), Some(&1));
    assert!(pool.available_bytes.is_some());
}

#[tokio::test]
async fn names_come_in_one_answer() {
    let plugin = Plugin::start().await;
    let wanted = v1::CreateVolumeRequest {
        mutable_parameters: entry("writeIops", "70"),
        ..new_volume("pvc-1")
    };
    let made = plugin.controller().create_volume(wanted).await.unwrap().into_inner();
    let volume = made.volume.unwrap();
    let snapshot = plugin.snapshot(&volume, "monday").await;
    let mut monitor = MonitorClient::new(plugin.channel());
    let volumes = monitor.list_volume_usage(ListVolumeUsageRequest {}).await.unwrap().into_inner();
    let [found] = volumes.volumes.as_slice() else { panic!("{volumes:?}") };
    assert_eq!((&found.volume_id, found.name.as_str()), (&volume.volume_id, "pvc-1"));
    assert_eq!(found.limits.get("writeIops"), Some(&70));
    let request = ListSnapshotNamesRequest {};
    let snapshots = monitor.list_snapshot_names(request).await.unwrap().into_inner();
    let [found] = snapshots.snapshots.as_slice() else { panic!("{snapshots:?}") };
    assert_eq!((&found.snapshot_id, found.name.as_str()), (&snapshot.snapshot_id, "monday"));
    assert_eq!(found.consistency, "filesystem");
}
