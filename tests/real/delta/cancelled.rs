//! Where data is read and compared, a caller that hangs up ends the reading, as a stop does.

use std::time::{Duration, Instant};

use orlop_tests::*;
use tonic::Streaming;

/// Far more than anything here takes; reached only by what never happens.
const TIMEOUT: Duration = Duration::from_secs(120);
const VOLUME: u64 = 256 * MIB;
/// More than read at once, and one fewer than a connection may have: those that are dropped count until the
/// daemon has seen it.
const STREAMS: u64 = 31;

/// What the daemon has read of any file so far.
fn bytes_read(daemon: &Daemon) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{}/io", daemon.pid())).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}

type Delta = Streaming<v1::GetMetadataDeltaResponse>;

async fn open_delta(client: &Client, base: &str, target: &str) -> Delta {
    let request = v1::GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        ..v1::GetMetadataDeltaRequest::default()
    };
    client.snapshot_metadata().get_metadata_delta(request).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn hangup_cancels_the_comparison() {
    needs_root!();
    let pool = TestPool::directory_of(2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(VOLUME).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, VOLUME);
    node.down().await;
    let base = client.snapshot("base", &volume.volume_id).await.unwrap().snapshot_id;
    let target = client.snapshot("target", &volume.volume_id).await.unwrap().snapshot_id;

    let before = bytes_read(&daemon);
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        open.push(open_delta(&client, &base, &target).await);
    }
    let deadline = Instant::now() + TIMEOUT;
    while bytes_read(&daemon) - before < 8 * MIB {
        assert!(Instant::now() < deadline, "nothing is read");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(open);
    // Another stream gets its turn, and nothing is read for those that are gone.
    let mut last = open_delta(&client, &base, &target).await;
    assert_eq!(last.message().await.unwrap().unwrap().block_metadata, []);
    let (read, all) = (bytes_read(&daemon) - before, 2 * VOLUME * STREAMS);
    assert!(read < all / 2, "{read} bytes of {all} were read for callers that hung up");
    daemon.terminate();
}
