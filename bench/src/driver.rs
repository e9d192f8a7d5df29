//! A driver behind its socket. What it does not offer is left out, not failed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_tests::v1::node_service_capability::rpc::Type as NodeRpc;
use orlop_tests::v1::plugin_capability::service::Type as PluginService;
use orlop_tests::v1::{node_service_capability, plugin_capability};
use orlop_tests::{Answer, Client, Create, OnNode, Scratch, block, mount, v1};

use crate::process::Process;
use crate::stopwatch::Stopwatch;

/// A list of 10,000 volumes does not fit the 4 MiB that gRPC allows by itself.
const LONGEST_ANSWER: usize = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mount,
    Block,
}

impl Kind {
    pub(crate) fn capability(self) -> v1::VolumeCapability {
        match self {
            Self::Mount => mount("ext4"),
            Self::Block => block(),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Block => "block",
        }
    }
}

pub(crate) struct Driver {
    /// As tables and plots call it.
    pub(crate) short: String,
    /// Its own name and version.
    pub(crate) name: String,
    pub(crate) client: Client,
    /// Otherwise published at once.
    stages: bool,
    /// Serves SnapshotMetadata.
    pub(crate) tells_changes: bool,
    /// `None` if the benchmark did not start it.
    pub(crate) process: Option<Process>,
    files: Option<Files>,
}

/// Where a driver keeps the data of block volumes and their snapshots, if it is known to keep each
/// in a file.
pub(crate) struct Files {
    pub(crate) volume: fn(&Path, &str) -> PathBuf,
    pub(crate) snapshot: fn(&Path, &str) -> PathBuf,
    pub(crate) root: PathBuf,
}

impl Driver {
    pub(crate) async fn started(mut process: Process, scratch: &Scratch) -> Self {
        process.start(scratch).await;
        let client = Client::new(&process.socket, scratch.clone());
        Self { process: Some(process), ..Self::behind(client).await }
    }

    pub(crate) async fn running(socket: &Path, scratch: &Scratch) -> Self {
        Self::behind(Client::new(socket, scratch.clone())).await
    }

    async fn behind(client: Client) -> Self {
        let info = client.identity().get_plugin_info(v1::GetPluginInfoRequest {}).await;
        let info = info.expect("GetPluginInfo").into_inner();
        let (short, version) = (info.name, info.vendor_version);
        let name = format!("{short} {version}");
        let stages = offers(&client, NodeRpc::StageUnstageVolume).await;
        let tells_changes = serves(&client, PluginService::SnapshotMetadataService).await;
        Self { short, name, client, stages, tells_changes, process: None, files: None }
    }

    pub(crate) fn called(self, short: &str) -> Self {
        Self { short: short.to_owned(), ..self }
    }

    pub(crate) fn keeping(mut self, files: Files) -> Self {
        self.files = Some(files);
        self
    }

    pub(crate) fn volume_file(&self, id: &str) -> Option<PathBuf> {
        self.files.as_ref().map(|files| (files.volume)(&files.root, id))
    }

    pub(crate) fn snapshot_file(&self, id: &str) -> Option<PathBuf> {
        self.files.as_ref().map(|files| (files.snapshot)(&files.root, id))
    }

    /// How long a successor needs until it is ready; `None` if the benchmark did not start the driver.
    pub(crate) async fn restart(&mut self) -> Option<Duration> {
        let process = self.process.as_mut()?;
        process.stop();
        let took = process.start(self.client.scratch()).await;
        self.client = Client::new(&process.socket, self.client.scratch().clone());
        Some(took)
    }

    pub(crate) fn create(&self, name: &str, kind: Kind, bytes: u64) -> Create {
        self.client.create(name).size(bytes).capability(kind.capability())
    }

    pub(crate) async fn up(&self, node: &OnNode, watch: &mut Stopwatch) {
        if self.stages {
            watch.call("stage", node.stage()).await;
        }
        watch.call("publish", node.publish()).await;
    }

    pub(crate) async fn down(&self, node: &OnNode, watch: &mut Stopwatch) {
        watch.call("unpublish", node.unpublish()).await;
        if self.stages {
            watch.call("unstage", node.unstage()).await;
        }
    }

    /// All volumes, page by page if the driver wants it so.
    pub(crate) async fn list(&self) -> Answer<u64> {
        let mut controller = self.client.controller().max_decoding_message_size(LONGEST_ANSWER);
        let mut request = v1::ListVolumesRequest::default();
        let mut count = 0;
        loop {
            let answer = controller.list_volumes(request.clone()).await?.into_inner();
            count += u64::try_from(answer.entries.len()).unwrap_or(u64::MAX);
            if answer.next_token.is_empty() {
                return Ok(count);
            }
            request.starting_token = answer.next_token;
        }
    }
}

async fn offers(client: &Client, wanted: NodeRpc) -> bool {
    use node_service_capability::Type;
    let request = v1::NodeGetCapabilitiesRequest {};
    let answer = client.node().node_get_capabilities(request).await;
    let offered = answer.expect("NodeGetCapabilities").into_inner().capabilities;
    let mut types = offered.into_iter().filter_map(|entry| entry.r#type);
    types.any(|Type::Rpc(rpc)| rpc.r#type() == wanted)
}

async fn serves(client: &Client, wanted: PluginService) -> bool {
    use plugin_capability::Type;
    let request = v1::GetPluginCapabilitiesRequest {};
    let answer = client.identity().get_plugin_capabilities(request).await;
    let offered = answer.expect("GetPluginCapabilities").into_inner().capabilities;
    let mut types = offered.into_iter().filter_map(|entry| entry.r#type);
    types.any(|offered| matches!(offered, Type::Service(service) if service.r#type() == wanted))
}
