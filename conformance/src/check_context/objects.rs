//! Volumes, snapshots and groups that checks start from.

use super::CheckContext;
use crate::capability::{block, mount_of};
use crate::check::Outcome;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::volume_content_source::Type;
use crate::wire::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, CreateSnapshotRequest,
    CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, DeleteVolumeRequest, Snapshot, Volume,
    VolumeCapability, VolumeContentSource, VolumeGroupSnapshot,
};

/// A well-formed id that no plugin issues.
const UNKNOWN_ID: &str = "nobody-ever-issued-this-id-4d1f5a";

/// The ends of each range that names must not hold (CV-06).
pub(crate) const BANNED_IN_NAMES: [char; 10] =
    ['\0', '\u{1}', '\u{8}', '\u{b}', '\u{c}', '\u{e}', '\u{1f}', '\u{7f}', '\u{80}', '\u{9f}'];

impl CheckContext {
    /// What a check uses that does not care: a mounted filesystem if the options allow one.
    pub fn capability(&self) -> VolumeCapability {
        if self.options().access.mount() {
            self.mount(Mode::SingleNodeWriter)
        } else {
            block(Mode::SingleNodeWriter)
        }
    }

    /// What a check uses that publishes and does not care: block where the options allow it, as
    /// that needs no filesystem.
    pub fn quick_capability(&self) -> VolumeCapability {
        if self.options().access.block() {
            block(Mode::SingleNodeWriter)
        } else {
            self.capability()
        }
    }

    /// A filesystem of the kind that the options name.
    pub fn mount(&self, mode: Mode) -> VolumeCapability {
        mount_of(&self.options().fs_type, mode)
    }

    /// Every access type that the options allow, in this mode.
    pub fn capabilities(&self, mode: Mode) -> Vec<VolumeCapability> {
        let access = self.options().access;
        let mounted = access.mount().then(|| self.mount(mode));
        mounted.into_iter().chain(access.block().then(|| block(mode))).collect()
    }

    pub fn size(&self) -> i64 {
        self.options().size
    }

    pub fn range(&self, required_bytes: i64, limit_bytes: i64) -> Option<CapacityRange> {
        Some(CapacityRange { required_bytes, limit_bytes })
    }

    /// A valid request for a volume, with a name that no other request has.
    pub fn new_volume(&self) -> CreateVolumeRequest {
        self.new_volume_for(self.capability())
    }

    pub fn new_volume_for(&self, capability: VolumeCapability) -> CreateVolumeRequest {
        CreateVolumeRequest {
            name: self.name("volume"),
            capacity_range: self.range(self.size(), 0),
            volume_capabilities: vec![capability],
            parameters: self.options().parameters.clone(),
            secrets: self.secrets(),
            ..CreateVolumeRequest::default()
        }
    }

    pub async fn create(&self, request: CreateVolumeRequest) -> Outcome<Volume> {
        let reply = self.ok(request).await?;
        self.some(reply.volume, "a volume in the reply")
    }

    /// A new volume that nothing is special about.
    pub async fn volume(&self) -> Outcome<Volume> {
        self.create(self.new_volume()).await
    }

    pub async fn volume_for(&self, capability: VolumeCapability) -> Outcome<Volume> {
        self.create(self.new_volume_for(capability)).await
    }

    /// A request that fills a new volume from another one or from a snapshot.
    pub fn new_copy(&self, source: Type, capability: VolumeCapability) -> CreateVolumeRequest {
        CreateVolumeRequest {
            volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
            ..self.new_volume_for(capability)
        }
    }

    pub fn delete(&self, volume: &Volume) -> DeleteVolumeRequest {
        DeleteVolumeRequest { volume_id: volume.volume_id.clone(), secrets: self.secrets() }
    }

    pub fn expand(&self, volume: &Volume, required_bytes: i64) -> ControllerExpandVolumeRequest {
        ControllerExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            capacity_range: self.range(required_bytes, 0),
            secrets: self.secrets(),
            volume_capability: None,
        }
    }

    /// The id of a volume that was there and is gone.
    pub async fn deleted_volume(&self) -> Outcome<String> {
        let volume = self.volume().await?;
        self.ok(self.delete(&volume)).await?;
        Ok(volume.volume_id)
    }

    pub fn new_snapshot(&self, volume: &Volume) -> CreateSnapshotRequest {
        CreateSnapshotRequest {
            source_volume_id: volume.volume_id.clone(),
            name: self.name("snapshot"),
            secrets: self.secrets(),
            parameters: self.options().snapshot_parameters.clone(),
            accessibility_requirements: None,
        }
    }

    /// A snapshot that is ready to be a source.
    pub async fn snapshot(&self, volume: &Volume) -> Outcome<Snapshot> {
        self.ready_snapshot(self.new_snapshot(volume)).await
    }

    /// Asks again, as an orchestrator does, until the snapshot can be used.
    pub async fn ready_snapshot(&self, request: CreateSnapshotRequest) -> Outcome<Snapshot> {
        for _ in 0..100 {
            let reply = self.ok(request.clone()).await?;
            let snapshot = self.some(reply.snapshot, "a snapshot in the reply")?;
            if snapshot.ready_to_use {
                return Ok(snapshot);
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        Err(self.failed("the snapshot to become ready"))
    }

    pub fn new_group_snapshot(&self, volumes: &[&Volume]) -> CreateVolumeGroupSnapshotRequest {
        CreateVolumeGroupSnapshotRequest {
            name: self.name("group-snapshot"),
            source_volume_ids: volumes.iter().map(|volume| volume.volume_id.clone()).collect(),
            secrets: self.secrets(),
            ..CreateVolumeGroupSnapshotRequest::default()
        }
    }

    pub async fn group_snapshot(&self, volumes: &[&Volume]) -> Outcome<VolumeGroupSnapshot> {
        let reply = self.ok(self.new_group_snapshot(volumes)).await?;
        self.some(reply.group_snapshot, "a group snapshot in the reply")
    }

    /// The id of nothing that is or was there.
    pub fn unknown_id(&self) -> String {
        UNKNOWN_ID.to_owned()
    }
}
