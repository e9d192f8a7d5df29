//! Bringing a volume to a path on the node, in as many steps as the plugin has.

use std::path::PathBuf;

use super::CheckContext;
use crate::capability::is_block;
use crate::check::Outcome;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::{
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, NodeGetVolumeStatsRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, Volume, VolumeCapability,
};

/// How a volume is brought to a node.
#[derive(Debug, Clone)]
pub struct Placing {
    pub capability: VolumeCapability,
    pub readonly: bool,
}

/// Where a volume is.
#[derive(Debug, Clone)]
pub struct Placed {
    pub volume: Volume,
    pub capability: VolumeCapability,
    pub publish_context: Pairs,
    /// Empty where the plugin does not stage.
    pub staging: String,
    pub target: String,
}

impl Placed {
    pub fn target_path(&self) -> PathBuf {
        PathBuf::from(&self.target)
    }

    pub fn staging_path(&self) -> PathBuf {
        PathBuf::from(&self.staging)
    }
}

impl CheckContext {
    pub fn attaches(&self) -> bool {
        self.features().has_controller(ControllerRpc::PublishUnpublishVolume)
    }

    pub fn stages(&self) -> bool {
        self.features().has_node(NodeRpc::StageUnstageVolume)
    }

    pub fn node_id(&self) -> String {
        self.features().node_info.node_id.clone()
    }

    /// Empty where no second node is known.
    pub fn other_node(&self) -> String {
        self.options().other_node.clone().unwrap_or_default()
    }

    pub fn attach(
        &self,
        volume: &Volume,
        capability: &VolumeCapability,
    ) -> ControllerPublishVolumeRequest {
        ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: self.node_id(),
            volume_capability: Some(capability.clone()),
            readonly: false,
            secrets: self.secrets(),
            volume_context: volume.volume_context.clone(),
        }
    }

    pub fn detach(&self, volume: &Volume) -> ControllerUnpublishVolumeRequest {
        ControllerUnpublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: self.node_id(),
            secrets: self.secrets(),
        }
    }

    /// Publishes to this node if the plugin knows that step, and returns what it says.
    pub async fn attached(&self, volume: &Volume, capability: &VolumeCapability) -> Outcome<Pairs> {
        if !self.attaches() {
            return Ok(Pairs::new());
        }
        Ok(self.ok(self.attach(volume, capability)).await?.publish_context)
    }

    /// A stage request at a new directory.
    pub fn stage(
        &self,
        volume: &Volume,
        capability: &VolumeCapability,
        publish_context: &Pairs,
    ) -> Outcome<NodeStageVolumeRequest> {
        let staging = self.staging_path()?;
        Ok(self.stage_at(volume, capability, publish_context, staging))
    }

    fn stage_at(
        &self,
        volume: &Volume,
        capability: &VolumeCapability,
        publish_context: &Pairs,
        staging_target_path: String,
    ) -> NodeStageVolumeRequest {
        NodeStageVolumeRequest {
            volume_id: volume.volume_id.clone(),
            publish_context: publish_context.clone(),
            staging_target_path,
            volume_capability: Some(capability.clone()),
            secrets: self.secrets(),
            volume_context: volume.volume_context.clone(),
        }
    }

    pub fn unstage(&self, placed: &Placed) -> NodeUnstageVolumeRequest {
        NodeUnstageVolumeRequest {
            volume_id: placed.volume.volume_id.clone(),
            staging_target_path: placed.staging.clone(),
        }
    }

    /// Attached and staged, not yet published; `target` is empty.
    pub async fn staged(&self, volume: &Volume, capability: VolumeCapability) -> Outcome<Placed> {
        let staging = if self.stages() { self.staging_path()? } else { String::new() };
        self.staged_at(volume, capability, staging).await
    }

    /// As [`CheckContext::staged`], in this directory; `staging` is empty where the plugin does not stage.
    pub async fn staged_at(
        &self,
        volume: &Volume,
        capability: VolumeCapability,
        staging: String,
    ) -> Outcome<Placed> {
        let publish_context = self.attached(volume, &capability).await?;
        if self.stages() {
            let staging = staging.clone();
            self.ok(self.stage_at(volume, &capability, &publish_context, staging)).await?;
        }
        let volume = volume.clone();
        Ok(Placed { volume, capability, publish_context, staging, target: String::new() })
    }

    /// A publish request for what is staged, at a new target.
    pub fn publish(&self, staged: &Placed) -> Outcome<NodePublishVolumeRequest> {
        Ok(NodePublishVolumeRequest {
            volume_id: staged.volume.volume_id.clone(),
            publish_context: staged.publish_context.clone(),
            staging_target_path: staged.staging.clone(),
            target_path: self.target_path()?,
            volume_capability: Some(staged.capability.clone()),
            readonly: false,
            secrets: self.secrets(),
            volume_context: staged.volume.volume_context.clone(),
        })
    }

    pub fn unpublish(&self, placed: &Placed) -> NodeUnpublishVolumeRequest {
        NodeUnpublishVolumeRequest {
            volume_id: placed.volume.volume_id.clone(),
            target_path: placed.target.clone(),
        }
    }

    /// All the way to a target path, writable.
    pub async fn placed(&self, volume: &Volume, capability: VolumeCapability) -> Outcome<Placed> {
        self.placed_as(volume, Placing { capability, readonly: false }).await
    }

    pub async fn placed_as(&self, volume: &Volume, placing: Placing) -> Outcome<Placed> {
        let mut placed = self.staged(volume, placing.capability).await?;
        let request =
            NodePublishVolumeRequest { readonly: placing.readonly, ..self.publish(&placed)? };
        placed.target.clone_from(&request.target_path);
        self.ok(request).await?;
        Ok(placed)
    }

    /// From where it is staged to a target of the caller's choice, writable.
    pub async fn published_at(&self, staged: Placed, target: String) -> Outcome<Placed> {
        let target_path = target.clone();
        self.ok(NodePublishVolumeRequest { target_path, ..self.publish(&staged)? }).await?;
        Ok(Placed { target, ..staged })
    }

    pub fn stats(&self, placed: &Placed, volume_path: &str) -> NodeGetVolumeStatsRequest {
        NodeGetVolumeStatsRequest {
            volume_id: placed.volume.volume_id.clone(),
            volume_path: volume_path.to_owned(),
            staging_target_path: placed.staging.clone(),
        }
    }

    /// Is the volume published at its target? By looking, or else by asking the plugin.
    pub async fn is_published(&self, placed: &Placed) -> Outcome<bool> {
        let target = placed.target_path();
        if self.options().local_files {
            return if is_block(&placed.capability) {
                Ok(self.is_block_device(&target))
            } else {
                self.is_mounted(&target)
            };
        }
        if !self.features().has_node(NodeRpc::GetVolumeStats) {
            return self.not_applicable("what is at a path cannot be seen from here");
        }
        self.is_found(self.stats(placed, &placed.target)).await
    }

    /// All the way back; the volume stays.
    pub async fn withdrawn(&self, placed: &Placed) -> Outcome {
        if !placed.target.is_empty() {
            self.ok(self.unpublish(placed)).await?;
        }
        if !placed.staging.is_empty() {
            self.ok(self.unstage(placed)).await?;
        }
        if self.attaches() {
            self.ok(self.detach(&placed.volume)).await?;
        }
        Ok(())
    }
}
