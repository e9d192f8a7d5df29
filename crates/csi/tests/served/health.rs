//! The health calls and the snapshot topology of CSI 1.13.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::{StorageHealthErrorType, VolumeHealthErrorType};
use orlop_model::{Condition, Error, HealthReason, Problem};
use tonic::{Code, Status};

use crate::plugin::{NO_VOLUME, NODE, Plugin, code, entry, mount};

const STAGING: &str = "/run/orlop-test/staging";

async fn list(
    plugin: &Plugin,
    max_entries: i32,
    starting_token: &str,
) -> Result<v1::ControllerListVolumeHealthResponse, Status> {
    let request = v1::ControllerListVolumeHealthRequest {
        max_entries,
        starting_token: starting_token.to_owned(),
        ..Default::default()
    };
    plugin
        .controller()
        .controller_list_volume_health(request)
        .await
        .map(tonic::Response::into_inner)
}

async fn get(plugin: &Plugin, volume_id: &str) -> Result<v1::VolumeHealth, Status> {
    let volume_id = volume_id.to_owned();
    let request = v1::ControllerGetVolumeHealthRequest { volume_id, ..Default::default() };
    let answer = plugin.controller().controller_get_volume_health(request).await?;
    Ok(answer.into_inner().volume_health.expect("always there"))
}

async fn on_node(
    plugin: &Plugin,
    volume_id: &str,
    staging: &str,
) -> Result<v1::VolumeHealth, Status> {
    let request = v1::NodeGetVolumeHealthRequest {
        volume_id: volume_id.to_owned(),
        staging_target_path: staging.to_owned(),
        ..Default::default()
    };
    let answer = plugin.node().node_get_volume_health(request).await?;
    Ok(answer.into_inner().volume_health.expect("always there"))
}

fn statuses(health: &v1::VolumeHealth) -> Vec<(VolumeHealthErrorType, &str)> {
    let each = |entry: &v1::volume_health::VolumeHealthEntry| entry.status();
    health.health_statuses.iter().map(|entry| (each(entry), entry.reason.as_str())).collect()
}

fn spoil(plugin: &Plugin, volume_id: &str, reason: HealthReason) {
    let condition = Condition::abnormal(reason, "it is spoilt ".repeat(20));
    plugin.pool.set_condition(&volume_id.parse().unwrap(), condition);
}

#[tokio::test]
async fn each_severity_has_its_status() {
    let plugin = Plugin::start().await;
    let id = plugin.volume("a").await.volume_id;
    let healthy = get(&plugin, &id).await.unwrap();
    assert_eq!((healthy.volume_id.as_str(), healthy.health_statuses.len()), (id.as_str(), 0));
    for (reason, status) in [
        (HealthReason::PoolFull, VolumeHealthErrorType::Degraded),
        (HealthReason::PoolUnreachable, VolumeHealthErrorType::Inaccessible),
        (HealthReason::BackingFileMissing, VolumeHealthErrorType::DataLoss),
    ] {
        spoil(&plugin, &id, reason);
        let health = get(&plugin, &id).await.unwrap();
        assert_eq!(statuses(&health), [(status, reason.as_str())]);
        assert!(health.health_statuses[0].message.len() <= 128, "GEN-01");
        assert_eq!(list(&plugin, 0, "").await.unwrap().entries, [health]);
    }
}

#[tokio::test]
async fn health_is_listed_in_pages() {
    let plugin = Plugin::start().await;
    let mut sick = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let id = plugin.volume(name).await.volume_id;
        if name != "c" {
            spoil(&plugin, &id, HealthReason::PoolFull);
            sick.push(id);
        }
    }
    sick.sort();
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let page = list(&plugin, 2, &token).await.unwrap();
        assert!(page.entries.len() <= 2);
        found.extend(page.entries.into_iter().map(|entry| entry.volume_id));
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(found, sick);
    assert_eq!(code(list(&plugin, 0, "what").await), Code::Aborted);
    assert_eq!(code(list(&plugin, -1, "").await), Code::InvalidArgument);
}

#[tokio::test]
async fn unknown_volumes_are_not_found() {
    let plugin = Plugin::start().await;
    let id = plugin.volume("a").await.volume_id;
    for id in [NO_VOLUME, "fake-vol-id"] {
        assert_eq!(code(get(&plugin, id).await), Code::NotFound, "{id}");
        assert_eq!(code(on_node(&plugin, id, "").await), Code::NotFound, "{id}");
    }
    let long = "x".repeat(129);
    assert_eq!(code(get(&plugin, &long).await), Code::InvalidArgument);
    assert_eq!(code(on_node(&plugin, &long, "").await), Code::InvalidArgument);
    // It exists, and is not on this node.
    assert_eq!(code(get(&plugin, &id).await), Code::Ok);
    assert_eq!(code(on_node(&plugin, &id, "").await), Code::NotFound);
    for path in ["relative/path", "/run/../etc"] {
        assert_eq!(code(on_node(&plugin, &id, path).await), Code::InvalidArgument, "{path}");
        let request = v1::NodeGetVolumeHealthRequest {
            volume_id: id.clone(),
            volume_publish_path: path.to_owned(),
            ..Default::default()
        };
        let answer = plugin.node().node_get_volume_health(request).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{path}");
    }
}

async fn stage(plugin: &Plugin, volume_id: &str) -> Code {
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: NODE.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    let answer = plugin.controller().controller_publish_volume(request).await;
    let request = v1::NodeStageVolumeRequest {
        volume_id: volume_id.to_owned(),
        publish_context: answer.unwrap().into_inner().publish_context,
        staging_target_path: STAGING.to_owned(),
        volume_capability: Some(mount()),
        ..Default::default()
    };
    code(plugin.node().node_stage_volume(request).await)
}

#[tokio::test]
async fn a_failed_stage_explains_itself() {
    let plugin = Plugin::start().await;
    let id = plugin.volume("a").await.volume_id;
    plugin.pool.fail_next("ensure_attached", Error::failed("attach it", "no loop device is free"));
    assert_eq!(stage(&plugin, &id).await, Code::Internal);
    let health = on_node(&plugin, &id, STAGING).await.unwrap();
    assert_eq!(statuses(&health), [(VolumeHealthErrorType::Inaccessible, "StageFailed")]);
    let said = &health.health_statuses[0].message;
    assert!(said.contains("no loop device is free"), "{said}");
    assert_eq!(stage(&plugin, &id).await, Code::Ok);
    assert_eq!(statuses(&on_node(&plugin, &id, STAGING).await.unwrap()), []);
}

#[tokio::test]
async fn storage_health_has_an_entry_for_each_reason() {
    let plugin = Plugin::start().await;
    let health = async || {
        let request = v1::NodeGetStorageHealthRequest { secrets: entry("password", "x") };
        let answer = plugin.node().node_get_storage_health(request).await.unwrap();
        answer.into_inner().backend_health
    };
    assert_eq!(health().await.len(), 0);
    plugin.pool.set_problems(vec![
        Problem::new(HealthReason::PoolFull, "below its floor"),
        Problem::new(HealthReason::PoolUnreachable, "its disk is gone"),
    ]);
    let found = health().await;
    let each = found.iter().map(|entry| (entry.status(), entry.reason.as_str()));
    assert_eq!(
        each.collect::<Vec<_>>(),
        [
            (StorageHealthErrorType::StorageUnreachable, "PoolUnreachable"),
            (StorageHealthErrorType::StorageDegraded, "PoolFull"),
        ]
    );
    assert!(found.iter().all(|entry| entry.volume_capability.is_none()));
    let request = v1::NodeGetStorageHealthRequest { secrets: entry("no key", "x") };
    let answer = plugin.node().node_get_storage_health(request).await;
    assert_eq!(code(answer), Code::InvalidArgument, "GEN-31");
}

#[tokio::test]
async fn snapshots_say_from_where_they_can_be_used() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let place = volume.accessible_topology.clone();
    assert_eq!(place.len(), 1);
    let create = async |name: &str, requisite: Vec<v1::Topology>| {
        let request = v1::CreateSnapshotRequest {
            source_volume_id: volume.volume_id.clone(),
            name: name.to_owned(),
            accessibility_requirements: Some(v1::TopologyRequirement {
                requisite,
                ..Default::default()
            }),
            ..Default::default()
        };
        plugin.controller().create_snapshot(request).await.map(tonic::Response::into_inner)
    };
    let made = create("s", place.clone()).await.unwrap().snapshot.unwrap();
    assert_eq!(made.accessible_topology, place);
    let request = v1::ListSnapshotsRequest::default();
    let listed = plugin.controller().list_snapshots(request).await.unwrap().into_inner();
    assert_eq!(listed.entries[0].snapshot, Some(made.clone()));
    let snapshot_id = made.snapshot_id.clone();
    let request = v1::GetSnapshotRequest { snapshot_id, ..Default::default() };
    let got = plugin.controller().get_snapshot(request).await.unwrap().into_inner();
    assert_eq!(got.snapshot, Some(made));

    let elsewhere = v1::Topology { segments: entry("orlop.example/node", "far") };
    for name in ["s", "t"] {
        let answer = create(name, vec![elsewhere.clone()]).await;
        assert_eq!(code(answer), Code::ResourceExhausted, "{name}");
    }
    assert_eq!(code(create("u", Vec::new()).await), Code::InvalidArgument);
}
