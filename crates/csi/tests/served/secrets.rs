//! GEN-37, GEN-38: nothing that could be a secret reaches a log or an error's text.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::volume_capability::{AccessType, MountVolume};
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
                target_path: path(),
                volume_capability: volume_capability(),
                secrets: secrets(),
                ..Default::default()
            })
            .await,
        );
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

#[tokio::test]
async fn are_not_in_the_log_but_calls_and_volumes_are() {
    let plugin = Plugin::start().await;
    let volume_id = plugin.volume("a").await.volume_id;
    send_everywhere(&plugin, &volume_id).await;
    let text = log().text();
    for expected in ["NodeStageVolume", "INVALID_ARGUMENT", volume_id.as_str()] {
        assert!(text.contains(expected), "{expected} is not in the log");
    }
    if let Some(line) = text.lines().find(|line| line.contains(CANARY)) {
        panic!("the canary sings: {line}");
    }
}
