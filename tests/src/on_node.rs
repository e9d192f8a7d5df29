//! A volume on the node: staged at one path, published at another.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orlop_csi::proto::csi::v1;
use rustix::fs::{major, minor};

use crate::capability::VolumeCapabilityExt;
use crate::client::{Answer, Client, text};

#[derive(Clone)]
pub struct OnNode {
    client: Client,
    pub id: String,
    pub capability: v1::VolumeCapability,
    pub volume_context: BTreeMap<String, String>,
    pub publish_context: BTreeMap<String, String>,
    /// Of NodeStageVolume.
    pub secrets: BTreeMap<String, String>,
    /// Made beforehand, as an orchestrator does.
    pub staging: PathBuf,
    /// Only its parent is made beforehand.
    pub target: PathBuf,
}

impl OnNode {
    pub(crate) fn new(
        client: Client,
        volume: &v1::Volume,
        capability: v1::VolumeCapability,
    ) -> Self {
        let id = volume.volume_id.clone();
        let staging = client.scratch().ensure_dir(Path::new("staging").join(&id));
        let target = client.new_target(&id);
        Self {
            secrets: client.secrets(),
            client,
            id,
            capability,
            volume_context: volume.volume_context.clone(),
            publish_context: BTreeMap::new(),
            staging,
            target,
        }
    }

    pub fn with_capability(&self, capability: v1::VolumeCapability) -> Self {
        Self { capability, ..self.clone() }
    }

    /// Of an encrypted volume.
    pub fn with_key(&self, passphrase: &str) -> Self {
        self.with_secrets(&[("encryptionPassphrase", passphrase)])
    }

    pub fn with_secrets(&self, secrets: &[(&str, &str)]) -> Self {
        let secrets = secrets.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        Self { secrets: secrets.collect(), ..self.clone() }
    }

    pub fn stage_request(&self) -> v1::NodeStageVolumeRequest {
        v1::NodeStageVolumeRequest {
            volume_id: self.id.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: text(&self.staging),
            volume_capability: Some(self.capability.clone()),
            volume_context: self.volume_context.clone(),
            secrets: self.secrets.clone(),
        }
    }

    pub fn publish_request(&self) -> v1::NodePublishVolumeRequest {
        v1::NodePublishVolumeRequest {
            volume_id: self.id.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: text(&self.staging),
            target_path: text(&self.target),
            volume_capability: Some(self.capability.clone()),
            volume_context: self.volume_context.clone(),
            ..v1::NodePublishVolumeRequest::default()
        }
    }

    pub async fn stage(&self) -> Answer<()> {
        self.client.node_stage(self.stage_request()).await
    }

    pub async fn publish(&self) -> Answer<()> {
        self.client.node_publish(self.publish_request()).await
    }

    pub async fn publish_at(&self, target: &Path, readonly: bool) -> Answer<()> {
        let request = v1::NodePublishVolumeRequest {
            target_path: text(target),
            readonly,
            ..self.publish_request()
        };
        self.client.node_publish(request).await
    }

    pub async fn unpublish(&self) -> Answer<()> {
        self.unpublish_at(&self.target).await
    }

    pub async fn unpublish_at(&self, target: &Path) -> Answer<()> {
        self.client.node_unpublish(&self.id, target).await
    }

    pub async fn unstage(&self) -> Answer<()> {
        self.client.node_unstage(&self.id, &self.staging).await
    }

    pub async fn stats(&self) -> Answer<v1::NodeGetVolumeStatsResponse> {
        self.client.node_stats(&self.id, &self.target).await
    }

    /// As this node sees it, wherever it is in use here.
    pub async fn health(&self) -> Answer<v1::VolumeHealth> {
        let request =
            v1::NodeGetVolumeHealthRequest { volume_id: self.id.clone(), ..Default::default() };
        let answer = self.client.node().node_get_volume_health(request).await?;
        Ok(answer.into_inner().volume_health.expect("health in the answer"))
    }

    /// NodeExpandVolume at the target.
    pub async fn expand(&self, bytes: u64) -> Answer<i64> {
        self.client.node_expand(&self.id, &self.target, bytes).await
    }

    /// Staged and published, or the test fails.
    pub async fn up(&self) {
        if let Err(status) = self.stage().await {
            panic!("NodeStageVolume {}: {status}", self.id);
        }
        if let Err(status) = self.publish().await {
            panic!("NodePublishVolume {}: {status}", self.id);
        }
    }

    /// Unpublished and unstaged; nothing may be left at either path.
    pub async fn down(&self) {
        if let Err(status) = self.unpublish().await {
            panic!("NodeUnpublishVolume {}: {status}", self.id);
        }
        assert!(!self.target.exists(), "{} is left", self.target.display());
        if let Err(status) = self.unstage().await {
            panic!("NodeUnstageVolume {}: {status}", self.id);
        }
    }

    /// The device of a raw volume that is published.
    pub fn device(&self) -> PathBuf {
        let number = std::fs::metadata(&self.target).expect("look at the target").rdev();
        let entry = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        let named = std::fs::read_link(entry).expect("a device that is there");
        Path::new("/dev").join(named.file_name().expect("its name"))
    }

    /// Where test data goes: the device itself, or a file in the mounted filesystem.
    pub fn data_path(&self) -> PathBuf {
        if self.capability.is_block() { self.target.clone() } else { self.target.join("data") }
    }
}
