//! CreateVolume, built word by word.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::capability::{Mode, VolumeCapabilityExt, block, mount};
use crate::client::{Answer, Client, int};

/// Without more words: the default size, mounted by one node that writes, default filesystem.
#[derive(Clone)]
pub struct Create {
    client: Client,
    pub request: v1::CreateVolumeRequest,
}

impl Create {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        let request = v1::CreateVolumeRequest {
            name: name.to_owned(),
            volume_capabilities: vec![mount("")],
            ..v1::CreateVolumeRequest::default()
        };
        Self { client, request }
    }

    /// At least this many bytes.
    pub fn size(mut self, bytes: u64) -> Self {
        self.range().required_bytes = int(bytes);
        self
    }

    /// At most this many bytes.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.range().limit_bytes = int(bytes);
        self
    }

    fn range(&mut self) -> &mut v1::CapacityRange {
        self.request.capacity_range.get_or_insert_default()
    }

    pub fn fs(self, fs_type: &str) -> Self {
        self.capability(mount(fs_type))
    }

    pub fn block(self) -> Self {
        self.capability(block())
    }

    /// In place of the one it has.
    pub fn capability(self, capability: v1::VolumeCapability) -> Self {
        self.capabilities(vec![capability])
    }

    pub fn capabilities(mut self, capabilities: Vec<v1::VolumeCapability>) -> Self {
        self.request.volume_capabilities = capabilities;
        self
    }

    /// Of all its capabilities.
    pub fn mode(mut self, mode: Mode) -> Self {
        let capabilities = std::mem::take(&mut self.request.volume_capabilities);
        self.request.volume_capabilities =
            capabilities.into_iter().map(|each| each.mode(mode)).collect();
        self
    }

    pub fn parameter(mut self, key: &str, value: &str) -> Self {
        let parameters = &mut self.request.parameters;
        parameters.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn thick(self) -> Self {
        self.parameter("provisioning", "thick")
    }

    pub fn mutable_parameter(mut self, key: &str, value: &str) -> Self {
        let parameters = &mut self.request.mutable_parameters;
        parameters.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn from_snapshot(self, id: &str) -> Self {
        let snapshot_id = id.to_owned();
        self.source(Type::Snapshot(SnapshotSource { snapshot_id }))
    }

    pub fn from_volume(self, id: &str) -> Self {
        let volume_id = id.to_owned();
        self.source(Type::Volume(VolumeSource { volume_id }))
    }

    fn source(mut self, source: Type) -> Self {
        self.request.volume_content_source = Some(v1::VolumeContentSource { r#type: Some(source) });
        self
    }

    pub async fn send(self) -> Answer<v1::Volume> {
        let answer = self.client.controller().create_volume(self.request).await?;
        Ok(answer.into_inner().volume.expect("a volume in the answer"))
    }

    /// [`Self::send`], which must succeed.
    pub async fn done(self) -> v1::Volume {
        let name = self.request.name.clone();
        match self.send().await {
            Ok(volume) => volume,
            Err(status) => panic!("CreateVolume {name}: {status}"),
        }
    }
}
