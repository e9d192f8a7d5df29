//! A stream whose reader takes its time, while very many others connect.

use std::time::Duration;

use orlop_csi::proto::csi::v1::GetMetadataAllocatedRequest;
use orlop_csi::proto::csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use orlop_model::{ByteRange, VolumeId};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

use crate::plugin::Plugin;

const BLOCK: u64 = 4096;
const RANGES: usize = 500;
/// More than are kept.
const OTHERS: usize = 600;
/// Reached only if no connection is closed.
const TIMEOUT: Duration = Duration::from_secs(60);

/// On a separate connection, which takes some forty messages ahead.
async fn slow_reader(plugin: &Plugin) -> SnapshotMetadataClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", plugin.socket.display())).unwrap();
    let endpoint = endpoint.initial_stream_window_size(1024);
    SnapshotMetadataClient::new(endpoint.connect().await.unwrap())
}

#[tokio::test]
async fn slow_reader_is_not_treated_as_idle() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let id: VolumeId = volume.volume_id.parse().unwrap();
    for number in (0..RANGES).map(|number| u64::try_from(number).unwrap()) {
        let range = ByteRange { start: 2 * number * BLOCK, length: BLOCK };
        plugin.pool.write_blocks(&id, range).unwrap();
    }
    let request = GetMetadataAllocatedRequest {
        snapshot_id: plugin.snapshot(&volume, "s").await.snapshot_id,
        max_results: 1,
        ..Default::default()
    };
    let mut reader = slow_reader(&plugin).await;
    let mut stream = reader.get_metadata_allocated(request).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());

    let mut others = Vec::new();
    for _ in 0..OTHERS {
        others.push(UnixStream::connect(&plugin.socket).await.unwrap());
    }
    // Connections that were idle for longer than the first of them are closed as well.
    let mut greeting = Vec::new();
    let ended = tokio::time::timeout(TIMEOUT, others[0].read_to_end(&mut greeting)).await;
    assert!(ended.is_ok(), "no reader was disconnected");

    let mut received = 1;
    while stream.message().await.unwrap().is_some() {
        received += 1;
    }
    assert_eq!(received, RANGES);
}
