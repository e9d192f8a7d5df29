//! GEN-10: each call, with each of its required fields left out. The ids in use name nothing,
//! so this also proves that missing fields are noticed before missing volumes (open point 8).

use orlop_csi::proto::csi::v1;
use tonic::Code;

use crate::plugin::{NO_SNAPSHOT, NO_VOLUME, NODE, Plugin, code, entry, mount, new_volume, range};

macro_rules! needs {
    ($client:expr, $method:ident($valid:expr), [$($field:ident),+]) => {{
        let mut client = $client;
        let complete = code(client.$method($valid).await);
        assert_ne!(complete, Code::InvalidArgument, "complete {}", stringify!($method));
        $({
            let mut request = $valid;
            request.$field = Default::default();
            let status = client.$method(request).await.err().unwrap_or_else(|| {
                panic!("{} works without {}", stringify!($method), stringify!($field))
            });
            assert_eq!(status.code(), Code::InvalidArgument, "{}", stringify!($method));
            assert!(status.message().contains(stringify!($field)), "{}", status.message());
        })+
    }};
}

pub(crate) use needs;

#[tokio::test]
async fn required_in_controller_calls_on_volumes() {
    let plugin = Plugin::start().await;
    let volume_id = || NO_VOLUME.to_owned();
    needs!(plugin.controller(), create_volume(new_volume("a")), [name, volume_capabilities]);
    let delete = || v1::DeleteVolumeRequest { volume_id: volume_id(), ..Default::default() };
    needs!(plugin.controller(), delete_volume(delete()), [volume_id]);
    let publish = || v1::ControllerPublishVolumeRequest {
        volume_id: volume_id(),
        node_id: NODE.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    needs!(
        plugin.controller(),
        controller_publish_volume(publish()),
        [volume_id, node_id, volume_capability]
    );
    let unpublish =
        || v1::ControllerUnpublishVolumeRequest { volume_id: volume_id(), ..Default::default() };
    needs!(plugin.controller(), controller_unpublish_volume(unpublish()), [volume_id]);
    let validate = || v1::ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id(),
        volume_capabilities: vec![mount()],
        ..Default::default()
    };
    needs!(
        plugin.controller(),
        validate_volume_capabilities(validate()),
        [volume_id, volume_capabilities]
    );
    let get = || v1::ControllerGetVolumeRequest { volume_id: volume_id() };
    needs!(plugin.controller(), controller_get_volume(get()), [volume_id]);
    let health =
        || v1::ControllerGetVolumeHealthRequest { volume_id: volume_id(), ..Default::default() };
    needs!(plugin.controller(), controller_get_volume_health(health()), [volume_id]);
    let expand = || v1::ControllerExpandVolumeRequest {
        volume_id: volume_id(),
        capacity_range: Some(range(1 << 30, 0)),
        ..Default::default()
    };
    needs!(plugin.controller(), controller_expand_volume(expand()), [volume_id, capacity_range]);
    let modify = || v1::ControllerModifyVolumeRequest {
        volume_id: volume_id(),
        mutable_parameters: entry("readIops", "100"),
        ..Default::default()
    };
    needs!(
        plugin.controller(),
        controller_modify_volume(modify()),
        [volume_id, mutable_parameters]
    );
}

#[tokio::test]
async fn required_in_controller_calls_on_snapshots() {
    let plugin = Plugin::start().await;
    let create = || v1::CreateSnapshotRequest {
        source_volume_id: NO_VOLUME.to_owned(),
        name: "s".to_owned(),
        ..Default::default()
    };
    needs!(plugin.controller(), create_snapshot(create()), [source_volume_id, name]);
    // Even for an id that no lookup would find, the name comes first.
    let foreign =
        v1::CreateSnapshotRequest { source_volume_id: "testId".to_owned(), ..Default::default() };
    let answer = plugin.controller().create_snapshot(foreign).await;
    assert_eq!(code(answer), Code::InvalidArgument);

    let delete =
        || v1::DeleteSnapshotRequest { snapshot_id: NO_SNAPSHOT.to_owned(), ..Default::default() };
    // The pool of this id is not served here, which is not a matter of fields.
    needs!(plugin.controller(), delete_snapshot(delete()), [snapshot_id]);
    let get =
        || v1::GetSnapshotRequest { snapshot_id: NO_SNAPSHOT.to_owned(), ..Default::default() };
    needs!(plugin.controller(), get_snapshot(get()), [snapshot_id]);
}

#[tokio::test]
async fn required_in_node_calls() {
    let plugin = Plugin::start().await;
    let (volume_id, path) = (|| NO_VOLUME.to_owned(), || "/run/x".to_owned());
    let stage = || v1::NodeStageVolumeRequest {
        volume_id: volume_id(),
        staging_target_path: path(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    needs!(
        plugin.node(),
        node_stage_volume(stage()),
        [volume_id, staging_target_path, volume_capability]
    );
    let unstage =
        || v1::NodeUnstageVolumeRequest { volume_id: volume_id(), staging_target_path: path() };
    needs!(plugin.node(), node_unstage_volume(unstage()), [volume_id, staging_target_path]);
    let publish = || v1::NodePublishVolumeRequest {
        volume_id: volume_id(),
        staging_target_path: path(),
        target_path: "/run/y".to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    needs!(
        plugin.node(),
        node_publish_volume(publish()),
        [volume_id, target_path, volume_capability]
    );
    let unpublish =
        || v1::NodeUnpublishVolumeRequest { volume_id: volume_id(), target_path: path() };
    needs!(plugin.node(), node_unpublish_volume(unpublish()), [volume_id, target_path]);
    let stats = || v1::NodeGetVolumeStatsRequest {
        volume_id: volume_id(),
        volume_path: path(),
        ..Default::default()
    };
    needs!(plugin.node(), node_get_volume_stats(stats()), [volume_id, volume_path]);
    let health = || v1::NodeGetVolumeHealthRequest { volume_id: volume_id(), ..Default::default() };
    needs!(plugin.node(), node_get_volume_health(health()), [volume_id]);
    let expand = || v1::NodeExpandVolumeRequest {
        volume_id: volume_id(),
        volume_path: path(),
        ..Default::default()
    };
    needs!(plugin.node(), node_expand_volume(expand()), [volume_id, volume_path]);
}
