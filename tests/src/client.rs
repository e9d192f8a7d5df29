//! The generated clients, and the calls that most tests make.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::group_controller_client::GroupControllerClient;
use orlop_csi::proto::csi::v1::identity_client::IdentityClient;
use orlop_csi::proto::csi::v1::node_client::NodeClient;
use orlop_csi::proto::csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::create::Create;
use crate::on_node::OnNode;
use crate::scratch::Scratch;

pub type Answer<T> = Result<T, Status>;

/// The answer must be this error.
#[track_caller]
pub fn expect_code<T>(answer: Answer<T>, code: Code) -> Status {
    match answer {
        Ok(_) => panic!("{code:?} was expected, but the call succeeded"),
        Err(status) => {
            assert_eq!(status.code(), code, "{}", status.message());
            assert!(!status.message().is_empty(), "{code:?} without a message");
            status
        }
    }
}

/// Sizes are signed on the wire.
pub fn int(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("a size that fits the wire")
}

/// Cheap to clone; survives restarts of the daemon.
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    channel: Arc<Mutex<Channel>>,
    scratch: Scratch,
    passphrase: Option<&'static str>,
}

impl Client {
    /// Of any plugin; `scratch` is where its volumes are staged and published.
    pub fn new(socket: &Path, scratch: Scratch) -> Self {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
        let endpoint = endpoint.expect("an endpoint");
        let channel = Arc::new(Mutex::new(endpoint.connect_lazy()));
        Self { endpoint, channel, scratch, passphrase: None }
    }

    /// The same; but all volumes that it creates are encrypted, and it stages all with this passphrase.
    pub fn encrypting(&self, passphrase: &'static str) -> Self {
        Self { passphrase: Some(passphrase), ..self.clone() }
    }

    /// As a call that opens a volume takes it.
    pub fn secrets(&self) -> BTreeMap<String, String> {
        let entry = |value: &str| ("encryptionPassphrase".to_owned(), value.to_owned());
        self.passphrase.map(entry).into_iter().collect()
    }

    /// This client and its clones forget a connection whose daemon was killed: once in thousands of
    /// times the library does not notice, and a call never returns.
    pub fn reconnect(&self) {
        *self.channel.lock().expect("the channel") = self.endpoint.connect_lazy();
    }

    pub fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel())
    }

    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel())
    }

    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel())
    }

    pub fn group_controller(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel())
    }

    pub fn snapshot_metadata(&self) -> SnapshotMetadataClient<Channel> {
        SnapshotMetadataClient::new(self.channel())
    }

    /// For clients of the other packages.
    pub fn channel(&self) -> Channel {
        self.channel.lock().expect("the channel").clone()
    }

    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub async fn probe(&self) -> Answer<bool> {
        let answer = self.identity().probe(v1::ProbeRequest {}).await?;
        Ok(answer.into_inner().ready.unwrap_or(true))
    }

    /// Probe's error, waited for as long as it may answer with what it found last.
    pub async fn failed_probe(&self) -> Status {
        let asking = async {
            loop {
                match self.probe().await {
                    Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                    Err(status) => return status,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asking).await.expect("Probe does not fail")
    }

    pub fn create(&self, name: &str) -> Create {
        let create = Create::new(self.clone(), name);
        match self.passphrase {
            Some(_) => create.parameter("encryption", "luks2"),
            None => create,
        }
    }

    pub async fn delete(&self, volume: &str) -> Answer<()> {
        let request = v1::DeleteVolumeRequest {
            volume_id: volume.to_owned(),
            ..v1::DeleteVolumeRequest::default()
        };
        self.controller().delete_volume(request).await.map(drop)
    }

    pub async fn snapshot(&self, name: &str, source: &str) -> Answer<v1::Snapshot> {
        let request = v1::CreateSnapshotRequest {
            source_volume_id: source.to_owned(),
            name: name.to_owned(),
            ..v1::CreateSnapshotRequest::default()
        };
        let answer = self.controller().create_snapshot(request).await?;
        let snapshot = answer.into_inner().snapshot;
        Ok(snapshot.expect("a snapshot in the answer"))
    }

    pub async fn delete_snapshot(&self, snapshot: &str) -> Answer<()> {
        let request = v1::DeleteSnapshotRequest {
            snapshot_id: snapshot.to_owned(),
            ..v1::DeleteSnapshotRequest::default()
        };
        self.controller().delete_snapshot(request).await.map(drop)
    }

    pub async fn list_volumes(&self) -> Answer<Vec<v1::list_volumes_response::Entry>> {
        let request = v1::ListVolumesRequest::default();
        let answer = self.controller().list_volumes(request).await?;
        Ok(answer.into_inner().entries)
    }

    pub async fn list_snapshots(&self) -> Answer<Vec<v1::Snapshot>> {
        let request = v1::ListSnapshotsRequest::default();
        let answer = self.controller().list_snapshots(request).await?.into_inner();
        let snapshots = answer.entries.into_iter().map(|entry| entry.snapshot);
        Ok(snapshots.map(|each| each.expect("a snapshot")).collect())
    }

    pub async fn get_volume(&self, volume: &str) -> Answer<v1::ControllerGetVolumeResponse> {
        let request = v1::ControllerGetVolumeRequest { volume_id: volume.to_owned() };
        let answer = self.controller().controller_get_volume(request).await?;
        Ok(answer.into_inner())
    }

    /// As the controller sees it.
    pub async fn condition(&self, volume: &str) -> Answer<v1::VolumeCondition> {
        let status = self.get_volume(volume).await?.status;
        let condition = status.and_then(|status| status.volume_condition);
        Ok(condition.expect("a condition in the answer"))
    }

    /// As the controller sees it.
    pub async fn health(&self, volume: &str) -> Answer<v1::VolumeHealth> {
        let request = v1::ControllerGetVolumeHealthRequest {
            volume_id: volume.to_owned(),
            ..Default::default()
        };
        let answer = self.controller().controller_get_volume_health(request).await?;
        Ok(answer.into_inner().volume_health.expect("health in the answer"))
    }

    pub async fn list_health(&self) -> Answer<Vec<v1::VolumeHealth>> {
        let request = v1::ControllerListVolumeHealthRequest::default();
        let answer = self.controller().controller_list_volume_health(request).await?;
        Ok(answer.into_inner().entries)
    }

    /// Status and reason of each backend, as this node sees them.
    pub async fn storage_health(&self) -> Answer<Vec<(v1::StorageHealthErrorType, String)>> {
        let request = v1::NodeGetStorageHealthRequest::default();
        let answer = self.node().node_get_storage_health(request).await?.into_inner();
        let found = answer.backend_health.into_iter();
        Ok(found.map(|each| (each.status(), each.reason)).collect())
    }

    pub async fn expand(
        &self,
        volume: &str,
        bytes: u64,
    ) -> Answer<v1::ControllerExpandVolumeResponse> {
        let request = v1::ControllerExpandVolumeRequest {
            volume_id: volume.to_owned(),
            capacity_range: Some(v1::CapacityRange { required_bytes: int(bytes), limit_bytes: 0 }),
            ..v1::ControllerExpandVolumeRequest::default()
        };
        let answer = self.controller().controller_expand_volume(request).await?;
        Ok(answer.into_inner())
    }

    pub async fn modify(&self, volume: &str, parameters: &[(&str, &str)]) -> Answer<()> {
        let request = v1::ControllerModifyVolumeRequest {
            volume_id: volume.to_owned(),
            mutable_parameters: string_map(parameters),
            ..v1::ControllerModifyVolumeRequest::default()
        };
        let answer = self.controller().controller_modify_volume(request).await;
        answer.map(drop)
    }

    /// With everything left open.
    pub async fn capacity(&self) -> Answer<v1::GetCapacityResponse> {
        self.capacity_for(v1::GetCapacityRequest::default()).await
    }

    pub async fn capacity_for(
        &self,
        request: v1::GetCapacityRequest,
    ) -> Answer<v1::GetCapacityResponse> {
        let answer = self.controller().get_capacity(request).await?;
        Ok(answer.into_inner())
    }

    /// The publish context.
    pub async fn controller_publish(
        &self,
        volume: &str,
        node: &str,
        capability: v1::VolumeCapability,
        readonly: bool,
    ) -> Answer<BTreeMap<String, String>> {
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: node.to_owned(),
            volume_capability: Some(capability),
            readonly,
            ..v1::ControllerPublishVolumeRequest::default()
        };
        let answer = self.controller().controller_publish_volume(request).await?;
        Ok(answer.into_inner().publish_context)
    }

    pub async fn controller_unpublish(&self, volume: &str, node: &str) -> Answer<()> {
        let request = v1::ControllerUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: node.to_owned(),
            ..v1::ControllerUnpublishVolumeRequest::default()
        };
        let answer = self.controller().controller_unpublish_volume(request).await;
        answer.map(drop)
    }

    /// The volume as this node is to use it, with new staging and target paths.
    pub fn on_node(&self, volume: &v1::Volume, capability: v1::VolumeCapability) -> OnNode {
        OnNode::new(self.clone(), volume, capability)
    }

    pub async fn node_stage(&self, request: v1::NodeStageVolumeRequest) -> Answer<()> {
        self.node().node_stage_volume(request).await.map(drop)
    }

    pub async fn node_unstage(&self, volume: &str, staging: &Path) -> Answer<()> {
        let request = v1::NodeUnstageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: text(staging),
        };
        self.node().node_unstage_volume(request).await.map(drop)
    }

    pub async fn node_publish(&self, request: v1::NodePublishVolumeRequest) -> Answer<()> {
        self.node().node_publish_volume(request).await.map(drop)
    }

    pub async fn node_unpublish(&self, volume: &str, target: &Path) -> Answer<()> {
        let request = v1::NodeUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            target_path: text(target),
        };
        self.node().node_unpublish_volume(request).await.map(drop)
    }

    pub async fn node_stats(
        &self,
        volume: &str,
        path: &Path,
    ) -> Answer<v1::NodeGetVolumeStatsResponse> {
        let request = v1::NodeGetVolumeStatsRequest {
            volume_id: volume.to_owned(),
            volume_path: text(path),
            ..v1::NodeGetVolumeStatsRequest::default()
        };
        let answer = self.node().node_get_volume_stats(request).await?;
        Ok(answer.into_inner())
    }

    /// What the node says the size is now.
    pub async fn node_expand(&self, volume: &str, path: &Path, bytes: u64) -> Answer<i64> {
        let request = v1::NodeExpandVolumeRequest {
            volume_id: volume.to_owned(),
            volume_path: text(path),
            capacity_range: Some(v1::CapacityRange { required_bytes: int(bytes), limit_bytes: 0 }),
            ..v1::NodeExpandVolumeRequest::default()
        };
        let answer = self.node().node_expand_volume(request).await?;
        Ok(answer.into_inner().capacity_bytes)
    }

    /// A path for a target that does not exist yet, in a directory that does.
    pub fn new_target(&self, name: &str) -> PathBuf {
        self.scratch.ensure_dir("targets").join(name)
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("paths of tests are text").to_owned()
}

pub(crate) fn string_map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}
