//! The calls of the story, as an orchestrator makes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::controller_service_capability as capability;
use orlop_csi::proto::csi::v1::group_controller_client::GroupControllerClient;
use orlop_csi::proto::csi::v1::identity_client::IdentityClient;
use orlop_csi::proto::csi::v1::node_client::NodeClient;
use orlop_csi::proto::csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use orlop_csi::proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use super::failure::Failure;
use super::interrupt::Interrupt;

const CALL_TIMEOUT: Duration = Duration::from_secs(60);
const FILESYSTEM: &str = "xfs";

/// What a volume begins with.
pub(super) enum Source<'a> {
    Nothing,
    Snapshot(&'a str),
    Volume(&'a str),
}

/// A volume and where it is mounted.
#[derive(Clone)]
pub(super) struct DemoVolume {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) bytes: u64,
    context: BTreeMap<String, String>,
    staging: PathBuf,
    pub(super) target: PathBuf,
}

/// Cheap to clone. One daemon's; its successor needs a new one.
#[derive(Clone)]
pub(super) struct Calls {
    channel: Channel,
    interrupt: Interrupt,
    directory: PathBuf,
}

impl Calls {
    pub(super) fn to(socket: &Path, interrupt: &Interrupt) -> Result<Self, Failure> {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
        let endpoint = endpoint.map_err(Failure::cannot("name the socket of the daemon"))?;
        let directory = socket.parent().unwrap_or(socket).to_owned();
        // Within the runtime: the channel has a task there.
        let connected = interrupt.run(async { Ok(endpoint.connect_lazy()) })?;
        Ok(Self { channel: connected, interrupt: interrupt.clone(), directory })
    }

    fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    fn ask<T>(
        &self,
        call: &str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        self.interrupt.run(async {
            match tokio::time::timeout(CALL_TIMEOUT, answer).await {
                Ok(Ok(answer)) => Ok(answer.into_inner()),
                Ok(Err(status)) => {
                    let (code, why) = (status.code(), status.message());
                    Err(Failure::broken(format!("{call} failed: {code:?}: {why}")))
                }
                Err(_) => {
                    Err(Failure::broken(format!("{call} was not answered within {CALL_TIMEOUT:?}")))
                }
            }
        })
    }

    /// A daemon that does not answer yet is not ready.
    pub(super) fn is_ready(&self) -> Result<bool, Failure> {
        let mut client = IdentityClient::new(self.channel.clone());
        self.interrupt.run(async {
            let asked = client.probe(v1::ProbeRequest {});
            let answered = tokio::time::timeout(CALL_TIMEOUT, asked).await;
            let ready = answered.ok().and_then(Result::ok).map(|answer| answer.into_inner().ready);
            Ok(ready.is_some_and(|ready| ready.unwrap_or(true)))
        })
    }

    pub(super) fn create(
        &self,
        name: &str,
        bytes: u64,
        source: &Source<'_>,
    ) -> Result<DemoVolume, Failure> {
        let source = match source {
            Source::Nothing => None,
            Source::Snapshot(id) => {
                Some(Type::Snapshot(SnapshotSource { snapshot_id: (*id).to_owned() }))
            }
            Source::Volume(id) => Some(Type::Volume(VolumeSource { volume_id: (*id).to_owned() })),
        };
        let request = v1::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(range(bytes)?),
            volume_capabilities: vec![mounted()],
            volume_content_source: source.map(|it| v1::VolumeContentSource { r#type: Some(it) }),
            ..v1::CreateVolumeRequest::default()
        };
        let answer = self.ask("CreateVolume", self.controller().create_volume(request))?;
        let made = answer
            .volume
            .ok_or_else(|| Failure::broken("CreateVolume answered without a volume"))?;
        let below = |directory: &str| self.directory.join(directory).join(name);
        Ok(DemoVolume {
            id: made.volume_id,
            name: name.to_owned(),
            bytes: u64::try_from(made.capacity_bytes).unwrap_or_default(),
            context: made.volume_context,
            staging: below("staging"),
            target: below("volumes"),
        })
    }

    pub(super) fn mount(&self, volume: &DemoVolume) -> Result<(), Failure> {
        let made = std::fs::create_dir_all(&volume.staging);
        let made = made.and_then(|()| std::fs::create_dir_all(self.directory.join("volumes")));
        made.map_err(Failure::cannot("make the mount points of a volume"))?;
        let request = v1::NodeStageVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: text(&volume.staging)?,
            volume_capability: Some(mounted()),
            volume_context: volume.context.clone(),
            ..v1::NodeStageVolumeRequest::default()
        };
        self.ask("NodeStageVolume", self.node().node_stage_volume(request))?;
        let request = v1::NodePublishVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: text(&volume.staging)?,
            target_path: text(&volume.target)?,
            volume_capability: Some(mounted()),
            volume_context: volume.context.clone(),
            ..v1::NodePublishVolumeRequest::default()
        };
        self.ask("NodePublishVolume", self.node().node_publish_volume(request)).map(drop)
    }

    pub(super) fn unmount(&self, volume: &DemoVolume) -> Result<(), Failure> {
        let request = v1::NodeUnpublishVolumeRequest {
            volume_id: volume.id.clone(),
            target_path: text(&volume.target)?,
        };
        self.ask("NodeUnpublishVolume", self.node().node_unpublish_volume(request))?;
        let request = v1::NodeUnstageVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: text(&volume.staging)?,
        };
        self.ask("NodeUnstageVolume", self.node().node_unstage_volume(request)).map(drop)
    }

    /// Its id.
    pub(super) fn snapshot(&self, name: &str, volume: &DemoVolume) -> Result<String, Failure> {
        let request = v1::CreateSnapshotRequest {
            source_volume_id: volume.id.clone(),
            name: name.to_owned(),
            ..v1::CreateSnapshotRequest::default()
        };
        let answer = self.ask("CreateSnapshot", self.controller().create_snapshot(request))?;
        let made = answer.snapshot.filter(|made| made.ready_to_use);
        let made = made.ok_or_else(|| {
            Failure::broken("CreateSnapshot answered without a snapshot that can be used")
        })?;
        Ok(made.snapshot_id)
    }

    /// The snapshots of the members, by the ids of their volumes.
    pub(super) fn group_snapshot(
        &self,
        name: &str,
        members: &[DemoVolume],
    ) -> Result<BTreeMap<String, String>, Failure> {
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: members.iter().map(|member| member.id.clone()).collect(),
            ..v1::CreateVolumeGroupSnapshotRequest::default()
        };
        let mut client = GroupControllerClient::new(self.channel.clone());
        let answer =
            self.ask("CreateVolumeGroupSnapshot", client.create_volume_group_snapshot(request))?;
        let made = answer.group_snapshot.map(|group| group.snapshots).unwrap_or_default();
        Ok(made.into_iter().map(|one| (one.source_volume_id, one.snapshot_id)).collect())
    }

    /// The ids of all snapshots, or of all volumes.
    pub(super) fn list_snapshots(&self) -> Result<Vec<String>, Failure> {
        let request = v1::ListSnapshotsRequest::default();
        let answer = self.ask("ListSnapshots", self.controller().list_snapshots(request))?;
        let all = answer.entries.into_iter().filter_map(|entry| entry.snapshot);
        Ok(all.map(|snapshot| snapshot.snapshot_id).collect())
    }

    pub(super) fn list_volumes(&self) -> Result<Vec<String>, Failure> {
        let request = v1::ListVolumesRequest::default();
        let answer = self.ask("ListVolumes", self.controller().list_volumes(request))?;
        let all = answer.entries.into_iter().filter_map(|entry| entry.volume);
        Ok(all.map(|volume| volume.volume_id).collect())
    }

    /// Offset and length of what differs, in rising order.
    pub(super) fn changed(&self, base: &str, target: &str) -> Result<Vec<(u64, u64)>, Failure> {
        let request = v1::GetMetadataDeltaRequest {
            base_snapshot_id: base.to_owned(),
            target_snapshot_id: target.to_owned(),
            ..v1::GetMetadataDeltaRequest::default()
        };
        let mut client = SnapshotMetadataClient::new(self.channel.clone());
        let mut stream = self.ask("GetMetadataDelta", client.get_metadata_delta(request))?;
        let mut ranges = Vec::new();
        let next = |status: Status| {
            Failure::broken(format!("GetMetadataDelta failed: {}", status.message()))
        };
        while let Some(page) = self.interrupt.run(async { stream.message().await.map_err(next) })? {
            let pairs = page.block_metadata.iter().filter_map(|range| {
                Some((
                    u64::try_from(range.byte_offset).ok()?,
                    u64::try_from(range.size_bytes).ok()?,
                ))
            });
            ranges.extend(pairs);
        }
        Ok(ranges)
    }

    pub(super) fn grow(&self, volume: &DemoVolume, bytes: u64) -> Result<(), Failure> {
        let request = v1::ControllerExpandVolumeRequest {
            volume_id: volume.id.clone(),
            capacity_range: Some(range(bytes)?),
            ..v1::ControllerExpandVolumeRequest::default()
        };
        self.ask("ControllerExpandVolume", self.controller().controller_expand_volume(request))?;
        let request = v1::NodeExpandVolumeRequest {
            volume_id: volume.id.clone(),
            volume_path: text(&volume.target)?,
            capacity_range: Some(range(bytes)?),
            ..v1::NodeExpandVolumeRequest::default()
        };
        self.ask("NodeExpandVolume", self.node().node_expand_volume(request)).map(drop)
    }

    pub(super) fn offers_limits(&self) -> Result<bool, Failure> {
        let request = v1::ControllerGetCapabilitiesRequest {};
        let answer = self.ask(
            "ControllerGetCapabilities",
            self.controller().controller_get_capabilities(request),
        )?;
        let offered = answer.capabilities.into_iter().filter_map(|one| one.r#type);
        let wanted = capability::rpc::Type::ModifyVolume;
        let is_wanted = |one: capability::Type| match one {
            capability::Type::Rpc(rpc) => rpc.r#type() == wanted,
        };
        Ok(offered.into_iter().any(is_wanted))
    }

    pub(super) fn limit_writes(
        &self,
        volume: &DemoVolume,
        bytes_per_second: u64,
    ) -> Result<(), Failure> {
        let limit = ("writeBytesPerSecond".to_owned(), bytes_per_second.to_string());
        let request = v1::ControllerModifyVolumeRequest {
            volume_id: volume.id.clone(),
            mutable_parameters: BTreeMap::from([limit]),
            ..v1::ControllerModifyVolumeRequest::default()
        };
        self.ask("ControllerModifyVolume", self.controller().controller_modify_volume(request))
            .map(drop)
    }
}

fn mounted() -> v1::VolumeCapability {
    use v1::volume_capability::{AccessMode, AccessType, MountVolume, access_mode};
    let mount = MountVolume { fs_type: FILESYSTEM.to_owned(), ..MountVolume::default() };
    let mode = access_mode::Mode::SingleNodeWriter;
    v1::VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

fn range(bytes: u64) -> Result<v1::CapacityRange, Failure> {
    let required_bytes = i64::try_from(bytes).map_err(Failure::cannot("ask for a volume"))?;
    Ok(v1::CapacityRange { required_bytes, limit_bytes: 0 })
}

fn text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        Failure::missing(format!(
            "the path {} is not text; name another with --dir",
            path.display()
        ))
    })
}
