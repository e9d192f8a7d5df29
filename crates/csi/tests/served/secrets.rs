//! GEN-37, GEN-38: nothing that could be a secret reaches a log or an error's text.

use std::collections::BTreeMap;

use orlop_csi::proto::csi::v1::group_controller_client::GroupControllerClient;
use orlop_csi::proto::csi::v1::volume_capability::{AccessType, MountVolume};
use orlop_csi::proto::csi::{v0, v1};
use orlop_csi::proto::volumegroup;
use tonic::{Response, Status};

use crate::plugin::{NODE, Plugin, entry, log, mount, new_volume, range};

const CANARY: &str = "canary-4711-sings";

fn checked<T>(answer: Result<Response<T>, Status>) {
    if let Err(status) = answer {
        assert!(!status.message().contains(CANARY), "{}", status.message());
    }
}

fn with_flag(flag: &str) -> v1::VolumeCapability {
    v1::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume {
            mount_flags: vec![flag.to_owned()],
            ..Default::default()
        })),
        ..mount()
    }
}

/// Once as meant, once with the value where the key should be, and once in a mount flag.
async fn send_everywhere(plugin: &Plugin, volume_id: &str) {
    let flagged = with_flag(&format!("password={CANARY}"));
    let misplaced = format!("{CANARY} is no key");
    for (secrets, capability) in [
        (entry("password", CANARY), mount()),
        (entry(&misplaced, "x"), mount()),
        (entry("password", CANARY), flagged),
    ] {
        let (volume_id, secrets) = (|| volume_id.to_owned(), || secrets.clone());
        let volume_capability = || Some(capability.clone());
        let path = || "/run/orlop-test/x".to_owned();
        let mut controller = plugin.controller();
        checked(
            controller
                .create_volume(v1::CreateVolumeRequest {
                    secrets: secrets(),
                    volume_capabilities: vec![capability.clone()],
                    ..new_volume("secretive")
                })
                .await,
        );
        checked(
            controller
                .controller_publish_volume(v1::ControllerPublishVolumeRequest {
                    volume_id: volume_id(),
                    node_id: NODE.to_owned(),
                    volume_capability: volume_capability(),
                    secrets: secrets(),
                    ..Default::default()
                })
                .await,
        );
        checked(
            controller
                .controller_expand_volume(v1::ControllerExpandVolumeRequest {
                    volume_id: volume_id(),
                    capacity_range: Some(range(1 << 30, 0)),
                    secrets: secrets(),
                    volume_capability: volume_capability(),
                })
                .await,
        );
        let mut node = plugin.node();
        checked(
            node.node_stage_volume(v1::NodeStageVolumeRequest {
                volume_id: volume_id(),
                staging_target_path: path(),
                volume_capability: volume_capability(),
                secrets: secrets(),
                ..Default::default()
            })
            .await,
        );
        checked(
            node.node_publish_volume(v1::NodePublishVolumeRequest {
                volume_id: volume_id(),
                staging_target_path: path(),
                target_path: "/run/orlop-test/y".to_owned(),
                volume_capability: volume_capability(),
                secrets: secrets(),
                ..Default::default()
            })
            .await,
        );
        send_with_health_calls(plugin, &volume_id(), &secrets()).await;
        checked(
            controller
                .delete_volume(v1::DeleteVolumeRequest {
                    volume_id: volume_id(),
                    secrets: secrets(),
                })
                .await,
        );
    }
}

async fn send_with_health_calls(
    plugin: &Plugin,
    volume_id: &str,
    secrets: &BTreeMap<String, String>,
) {
    let request = v1::ControllerGetVolumeHealthRequest {
        volume_id: volume_id.to_owned(),
        secrets: secrets.clone(),
    };
    checked(plugin.controller().controller_get_volume_health(request).await);
    let request =
        v1::ControllerListVolumeHealthRequest { secrets: secrets.clone(), ..Default::default() };
    checked(plugin.controller().controller_list_volume_health(request).await);
    let request = v1::NodeGetStorageHealthRequest { secrets: secrets.clone() };
    checked(plugin.node().node_get_storage_health(request).await);
}

/// V0-13, VG-48: the same through the services that came later, and the one that came before.
async fn send_by_other_services(plugin: &Plugin, volume_id: &str) {
    let misplaced = format!("{CANARY} is no key");
    for secrets in [entry("password", CANARY), entry(&misplaced, "x")] {
        let (volume_id, secrets) = (|| volume_id.to_owned(), || secrets.clone());
        let mut groups = GroupControllerClient::new(plugin.channel());
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: "secretive".to_owned(),
            source_volume_ids: vec![volume_id()],
            secrets: secrets(),
            ..Default::default()
        };
        checked(groups.create_volume_group_snapshot(request).await);
        let mut volume_groups =
            volumegroup::controller_client::ControllerClient::new(plugin.channel());
        let request = volumegroup::CreateVolumeGroupRequest {
            name: "secretive".to_owned(),
            secrets: secrets(),
            ..Default::default()
        };
        checked(volume_groups.create_volume_group(request).await);
        let mut old = v0::node_client::NodeClient::new(plugin.channel());
        let flagged = v0::volume_capability::MountVolume {
            mount_flags: vec![format!("password={CANARY}")],
            ..Default::default()
        };
        let request = v0::NodeStageVolumeRequest {
            volume_id: volume_id(),
            staging_target_path: "/run/orlop-test/x".to_owned(),
            node_stage_secrets: secrets(),
            volume_capability: Some(v0::VolumeCapability {
                access_type: Some(v0::volume_capability::AccessType::Mount(flagged)),
                access_mode: Some(v0::volume_capability::AccessMode { mode: 1 }),
            }),
            ..Default::default()
        };
        checked(old.node_stage_volume(request).await);
    }
}

#[tokio::test]
async fn secrets_are_not_logged_but_calls_and_volumes_are() {
    let plugin = Plugin::start().await;
    let volume_id = plugin.volume("a").await.volume_id;
    send_by_other_services(&plugin, &volume_id).await;
    send_everywhere(&plugin, &volume_id).await;
    let text = log().text();
    for expected in ["NodeStageVolume", "INVALID_ARGUMENT", volume_id.as_str()] {
        assert!(text.contains(expected), "{expected} is not in the log");
    }
    if let Some(line) = text.lines().find(|line| line.contains(CANARY)) {
        panic!("the canary sings: {line}");
    }
}
