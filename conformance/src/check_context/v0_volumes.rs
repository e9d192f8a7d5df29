//! Volumes of csi.v0 that checks start from, and the way to a path and back.

use std::path::PathBuf;

use super::CheckContext;
use crate::capability::block;
use crate::check::Outcome;
use crate::options::Pairs;
use crate::wire::csi::v0::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v0::volume_capability::access_mode::Mode;
use crate::wire::csi::v0::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use crate::wire::csi::v0::{
    CapacityRange, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, ValidateVolumeCapabilitiesRequest,
    Volume, VolumeCapability,
};
use crate::wire::csi::v1;

/// Where a volume of csi.v0 is.
#[derive(Debug, Clone)]
pub struct V0Placed {
    pub volume: Volume,
    pub capability: VolumeCapability,
    pub publish_info: Pairs,
    /// Empty where the plugin does not stage.
    pub staging: String,
    pub target: String,
}

impl V0Placed {
    pub fn target_path(&self) -> PathBuf {
        PathBuf::from(&self.target)
    }
}

fn older(capability: &v1::VolumeCapability, mode: Mode) -> VolumeCapability {
    use v1::volume_capability::AccessType as Newer;
    let access = match &capability.access_type {
        Some(Newer::Mount(mount)) => AccessType::Mount(MountVolume {
            fs_type: mount.fs_type.clone(),
            mount_flags: mount.mount_flags.clone(),
        }),
        Some(Newer::Block(_)) | None => AccessType::Block(BlockVolume {}),
    };
    VolumeCapability {
        access_type: Some(access),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

impl CheckContext {
    /// The access that a check uses which does not care.
    pub fn v0_capability(&self, mode: Mode) -> VolumeCapability {
        older(&self.capability(), mode)
    }

    pub fn v0_block(&self, mode: Mode) -> VolumeCapability {
        older(&block(v1::volume_capability::access_mode::Mode::SingleNodeWriter), mode)
    }

    pub fn v0_new_volume(&self) -> CreateVolumeRequest {
        self.v0_new_volume_for(self.v0_capability(Mode::SingleNodeWriter))
    }

    pub fn v0_new_volume_for(&self, capability: VolumeCapability) -> CreateVolumeRequest {
        CreateVolumeRequest {
            name: self.name("volume"),
            capacity_range: Some(CapacityRange { required_bytes: self.size(), limit_bytes: 0 }),
            volume_capabilities: vec![capability],
            parameters: self.options().parameters.clone(),
            controller_create_secrets: self.secrets(),
        }
    }

    pub async fn v0_create(&self, request: CreateVolumeRequest) -> Outcome<Volume> {
        let reply = self.ok(request).await?;
        self.some(reply.volume, "a volume in the reply")
    }

    pub async fn v0_volume(&self) -> Outcome<Volume> {
        self.v0_create(self.v0_new_volume()).await
    }

    pub fn v0_delete(&self, volume: &Volume) -> DeleteVolumeRequest {
        DeleteVolumeRequest {
            volume_id: volume.id.clone(),
            controller_delete_secrets: self.secrets(),
        }
    }

    pub fn v0_validate(
        &self,
        volume: &Volume,
        capabilities: &[&VolumeCapability],
    ) -> ValidateVolumeCapabilitiesRequest {
        ValidateVolumeCapabilitiesRequest {
            volume_id: volume.id.clone(),
            volume_capabilities: capabilities.iter().map(|it| (*it).clone()).collect(),
            volume_attributes: volume.attributes.clone(),
        }
    }

    pub fn v0_attaches(&self) -> bool {
        self.features().has_v0_controller(ControllerRpc::PublishUnpublishVolume)
    }

    pub fn v0_attach(
        &self,
        volume: &Volume,
        capability: &VolumeCapability,
    ) -> ControllerPublishVolumeRequest {
        ControllerPublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id: self.node_id(),
            volume_capability: Some(capability.clone()),
            readonly: false,
            controller_publish_secrets: self.secrets(),
            volume_attributes: volume.attributes.clone(),
        }
    }

    pub fn v0_detach(&self, volume: &Volume) -> ControllerUnpublishVolumeRequest {
        ControllerUnpublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id: self.node_id(),
            controller_unpublish_secrets: self.secrets(),
        }
    }

    /// Attached if the plugin knows that step, and where to stage it.
    pub async fn v0_attached(
        &self,
        volume: &Volume,
        capability: VolumeCapability,
    ) -> Outcome<V0Placed> {
        let mut publish_info = Pairs::new();
        if self.v0_attaches() {
            publish_info = self.ok(self.v0_attach(volume, &capability)).await?.publish_info;
        }
        let staging = if self.features().v0_stages { self.staging_path()? } else { String::new() };
        let volume = volume.clone();
        Ok(V0Placed { volume, capability, publish_info, staging, target: String::new() })
    }

    pub fn v0_stage(&self, placed: &V0Placed) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: placed.volume.id.clone(),
            publish_info: placed.publish_info.clone(),
            staging_target_path: placed.staging.clone(),
            volume_capability: Some(placed.capability.clone()),
            node_stage_secrets: self.secrets(),
            volume_attributes: placed.volume.attributes.clone(),
        }
    }

    pub async fn v0_staged(
        &self,
        volume: &Volume,
        capability: VolumeCapability,
    ) -> Outcome<V0Placed> {
        let placed = self.v0_attached(volume, capability).await?;
        if self.features().v0_stages {
            self.ok(self.v0_stage(&placed)).await?;
        }
        Ok(placed)
    }

    /// A target that the caller has made, as it has to in this version (V0-28).
    pub fn v0_target(&self, capability: &VolumeCapability) -> Outcome<String> {
        let target = self.target_path()?;
        if matches!(capability.access_type, Some(AccessType::Mount(_))) {
            self.made_directory(&PathBuf::from(&target))?;
        }
        Ok(target)
    }

    pub fn v0_publish(&self, placed: &V0Placed) -> NodePublishVolumeRequest {
        NodePublishVolumeRequest {
            volume_id: placed.volume.id.clone(),
            publish_info: placed.publish_info.clone(),
            staging_target_path: placed.staging.clone(),
            target_path: placed.target.clone(),
            volume_capability: Some(placed.capability.clone()),
            readonly: false,
            node_publish_secrets: self.secrets(),
            volume_attributes: placed.volume.attributes.clone(),
        }
    }

    pub async fn v0_placed(
        &self,
        volume: &Volume,
        capability: VolumeCapability,
    ) -> Outcome<V0Placed> {
        let mut placed = self.v0_staged(volume, capability).await?;
        placed.target = self.v0_target(&placed.capability)?;
        self.ok(self.v0_publish(&placed)).await?;
        Ok(placed)
    }

    pub fn v0_unpublish(&self, placed: &V0Placed) -> NodeUnpublishVolumeRequest {
        NodeUnpublishVolumeRequest {
            volume_id: placed.volume.id.clone(),
            target_path: placed.target.clone(),
        }
    }

    pub fn v0_unstage(&self, placed: &V0Placed) -> NodeUnstageVolumeRequest {
        NodeUnstageVolumeRequest {
            volume_id: placed.volume.id.clone(),
            staging_target_path: placed.staging.clone(),
        }
    }

    /// All the way back; the volume stays.
    pub async fn v0_withdrawn(&self, placed: &V0Placed) -> Outcome {
        if !placed.target.is_empty() {
            self.ok(self.v0_unpublish(placed)).await?;
        }
        if !placed.staging.is_empty() {
            self.ok(self.v0_unstage(placed)).await?;
        }
        if self.v0_attaches() {
            self.ok(self.v0_detach(&placed.volume)).await?;
        }
        Ok(())
    }
}
