//! An orchestrator that speaks csi.v0.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use orlop_tests::*;
use tonic::transport::Channel;
use v0::controller_client::ControllerClient;
use v0::identity_client::IdentityClient;
use v0::node_client::NodeClient;
use v0::volume_capability::access_mode::Mode as OldMode;
use v0::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

pub(crate) fn v0_mount(fs_type: &str) -> v0::VolumeCapability {
    let mount = MountVolume { fs_type: fs_type.to_owned(), ..MountVolume::default() };
    with_access(AccessType::Mount(mount))
}

pub(crate) fn v0_block() -> v0::VolumeCapability {
    with_access(AccessType::Block(BlockVolume {}))
}

fn with_access(access: AccessType) -> v0::VolumeCapability {
    v0::VolumeCapability {
        access_type: Some(access),
        access_mode: Some(AccessMode { mode: OldMode::SingleNodeWriter.into() }),
    }
}

#[derive(Clone)]
pub(crate) struct V0Plugin {
    client: Client,
}

impl V0Plugin {
    pub(crate) fn of(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    pub(crate) fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.client.channel())
    }

    pub(crate) fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.client.channel())
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.client.channel())
    }

    pub(crate) async fn create(
        &self,
        name: &str,
        bytes: u64,
        capability: &v0::VolumeCapability,
    ) -> v0::Volume {
        let request = v0::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(v0::CapacityRange { required_bytes: int(bytes), limit_bytes: 0 }),
            volume_capabilities: vec![capability.clone()],
            ..v0::CreateVolumeRequest::default()
        };
        let answer = self.controller().create_volume(request).await.expect("CreateVolume");
        answer.into_inner().volume.expect("a volume in the answer")
    }

    pub(crate) async fn delete(&self, volume: &str) -> Answer<()> {
        let request = v0::DeleteVolumeRequest {
            volume_id: volume.to_owned(),
            ..v0::DeleteVolumeRequest::default()
        };
        self.controller().delete_volume(request).await.map(drop)
    }

    pub(crate) async fn list(&self) -> Vec<v0::Volume> {
        let answer = self.controller().list_volumes(v0::ListVolumesRequest::default()).await;
        let entries = answer.expect("ListVolumes").into_inner().entries.into_iter();
        entries.map(|entry| entry.volume.expect("a volume in each entry")).collect()
    }

    pub(crate) async fn supports(
        &self,
        volume: &v0::Volume,
        capability: &v0::VolumeCapability,
    ) -> bool {
        let request = v0::ValidateVolumeCapabilitiesRequest {
            volume_id: volume.id.clone(),
            volume_capabilities: vec![capability.clone()],
            volume_attributes: volume.attributes.clone(),
        };
        let answer = self.controller().validate_volume_capabilities(request).await;
        answer.expect("ValidateVolumeCapabilities").into_inner().supported
    }
}

/// A volume on the node. Both paths are made beforehand, as csi.v0 has it.
pub(crate) struct V0Node {
    plugin: V0Plugin,
    volume: v0::Volume,
    capability: v0::VolumeCapability,
    publish_info: BTreeMap<String, String>,
    pub(crate) staging: PathBuf,
    pub(crate) target: PathBuf,
}

impl V0Node {
    pub(crate) fn new(
        plugin: &V0Plugin,
        volume: &v0::Volume,
        capability: &v0::VolumeCapability,
    ) -> Self {
        let scratch = plugin.client.scratch();
        let target = scratch.join("old-target");
        if is_block(capability) {
            std::fs::write(&target, "").expect("make the target path");
        } else {
            scratch.ensure_dir("old-target");
        }
        Self {
            plugin: plugin.clone(),
            volume: volume.clone(),
            capability: capability.clone(),
            publish_info: BTreeMap::new(),
            staging: scratch.ensure_dir("old-staging"),
            target,
        }
    }

    pub(crate) async fn attach(&mut self, node: &str) {
        let request = v0::ControllerPublishVolumeRequest {
            volume_id: self.volume.id.clone(),
            node_id: node.to_owned(),
            volume_capability: Some(self.capability.clone()),
            volume_attributes: self.volume.attributes.clone(),
            ..v0::ControllerPublishVolumeRequest::default()
        };
        let answer = self.plugin.controller().controller_publish_volume(request).await;
        self.publish_info = answer.expect("ControllerPublishVolume").into_inner().publish_info;
    }

    pub(crate) async fn detach(&self, node: &str) {
        let request = v0::ControllerUnpublishVolumeRequest {
            volume_id: self.volume.id.clone(),
            node_id: node.to_owned(),
            ..v0::ControllerUnpublishVolumeRequest::default()
        };
        let answer = self.plugin.controller().controller_unpublish_volume(request).await;
        answer.expect("ControllerUnpublishVolume");
    }

    pub(crate) async fn stage(&self) -> Answer<()> {
        let request = v0::NodeStageVolumeRequest {
            volume_id: self.volume.id.clone(),
            publish_info: self.publish_info.clone(),
            staging_target_path: text(&self.staging),
            volume_capability: Some(self.capability.clone()),
            volume_attributes: self.volume.attributes.clone(),
            ..v0::NodeStageVolumeRequest::default()
        };
        self.plugin.node().node_stage_volume(request).await.map(drop)
    }

    pub(crate) async fn publish(&self) -> Answer<()> {
        let request = v0::NodePublishVolumeRequest {
            volume_id: self.volume.id.clone(),
            publish_info: self.publish_info.clone(),
            staging_target_path: text(&self.staging),
            target_path: text(&self.target),
            volume_capability: Some(self.capability.clone()),
            volume_attributes: self.volume.attributes.clone(),
            ..v0::NodePublishVolumeRequest::default()
        };
        self.plugin.node().node_publish_volume(request).await.map(drop)
    }

    pub(crate) async fn unpublish(&self) -> Answer<()> {
        let request = v0::NodeUnpublishVolumeRequest {
            volume_id: self.volume.id.clone(),
            target_path: text(&self.target),
        };
        self.plugin.node().node_unpublish_volume(request).await.map(drop)
    }

    pub(crate) async fn unstage(&self) -> Answer<()> {
        let request = v0::NodeUnstageVolumeRequest {
            volume_id: self.volume.id.clone(),
            staging_target_path: text(&self.staging),
        };
        self.plugin.node().node_unstage_volume(request).await.map(drop)
    }

    pub(crate) fn data_path(&self) -> PathBuf {
        if is_block(&self.capability) { self.target.clone() } else { self.target.join("data") }
    }

    pub(crate) fn remove_target(&self) {
        let removed = match is_block(&self.capability) {
            true => std::fs::remove_file(&self.target),
            false => std::fs::remove_dir(&self.target),
        };
        removed.expect("remove the target path");
    }
}

fn is_block(capability: &v0::VolumeCapability) -> bool {
    matches!(capability.access_type, Some(AccessType::Block(_)))
}

fn text(path: &Path) -> String {
    path.to_str().expect("paths of tests are text").to_owned()
}
