//! Streams that are opened and not read.

use std::os::unix::fs::FileExt;

use orlop_tests::*;
use tonic::Streaming;

const TOLERATED: u64 = 256 * MIB;
const STREAMS: usize = 200;
/// Every second block is written, so that there is much to tell.
const SIZE: u64 = 32 * MIB;
const BLOCK: [u8; 4096] = [0x5a; 4096];

async fn snapshot_with_many_extents(client: &Client) -> String {
    let volume = client.create("v").size(SIZE).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    let device = std::fs::File::options().write(true).open(&node.target).unwrap();
    for offset in (0..SIZE).step_by(2 * BLOCK.len()) {
        device.write_all_at(&BLOCK, offset).unwrap();
    }
    device.sync_all().unwrap();
    drop(device);
    node.down().await;
    client.snapshot("s", &node.id).await.unwrap().snapshot_id
}

type AllocatedStream = Streaming<v1::GetMetadataAllocatedResponse>;

async fn open(client: &Client, snapshot: &str) -> Answer<AllocatedStream> {
    let request = v1::GetMetadataAllocatedRequest {
        snapshot_id: snapshot.to_owned(),
        // One message for each of some thousand extents.
        max_results: 1,
        ..v1::GetMetadataAllocatedRequest::default()
    };
    let answer = client.snapshot_metadata().get_metadata_allocated(request).await?;
    Ok(answer.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_streams_do_not_block_other_calls() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let snapshot = snapshot_with_many_extents(&client).await;
    let before = resident_bytes(daemon.pid());

    // Streams of one connection share its flow-control window; so this one has a separate connection.
    let mut read_late = open(&daemon.client(), &snapshot).await.unwrap();
    let mut unread = Vec::new();
    let mut refused = 0;
    for _ in 0..STREAMS {
        match open(&client, &snapshot).await {
            Ok(stream) => unread.push(stream),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                refused += 1;
            }
        }
    }
    assert!(!unread.is_empty() && refused > 0, "{} open, {refused} refused", unread.len());
    let resident = resident_bytes(daemon.pid());
    report(&format!(
        "{} streams unread, {refused} refused, {} MiB before, {} MiB with them",
        unread.len(),
        before / MIB,
        resident / MIB
    ));
    assert!(resident < before + TOLERATED, "{before} bytes became {resident}");

    // Other clients are answered, on separate connections.
    let other = daemon.client();
    assert!(other.probe().await.unwrap());
    other.create("w").size(MIB).block().done().await;

    // One that is read at last tells everything, in order.
    let (mut extents, mut end) = (0, 0);
    while let Some(message) = read_late.message().await.unwrap() {
        for extent in message.block_metadata {
            assert!(extent.byte_offset >= end, "{} after {end}", extent.byte_offset);
            end = extent.byte_offset + extent.size_bytes;
            extents += 1;
        }
    }
    assert!(extents > 1, "{extents} extents");

    // The others are still unread when the daemon gets SIGTERM.
    daemon.terminate();
    drop(unread);
}
