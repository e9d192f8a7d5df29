//! Which blocks of a large, sparse volume have changed: it should cost what the changes cost, not
//! what the volume's size would.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use orlop_tests::*;
use tonic::Streaming;

use crate::table::{self, Row};

const VOLUME: u64 = 100 * GIB;
const POOL: u64 = 160 * GIB;
const BLOCK: u64 = 4096;
/// Scattered blocks that the base holds: each is an extent that has to be looked at.
const BEFORE: [u64; 2] = [1000, 10_000];
/// Scattered blocks that are written afterwards.
const CHANGED: u64 = 1000;

pub(crate) async fn run(runs: usize) {
    let pool = TestPool::new(PoolFs::Xfs, POOL);
    let daemon = Launch::on(&pool).env("ORLOP_LOG", "warn").start().await;
    let client = daemon.client();
    println!(
        "{} GiB on an XFS pool, {CHANGED} scattered blocks of 4 KiB changed, {runs} runs",
        VOLUME / GIB
    );
    for before in BEFORE {
        measure(&client, before, runs).await;
    }
}

async fn measure(client: &Client, before: u64, runs: usize) {
    let volume = client.create("volume").size(VOLUME).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    let mut rng = Rng::with_seed(1);
    scatter(&node.target, before, &mut rng);
    let base = client.snapshot("base", &node.id).await.unwrap().snapshot_id;
    scatter(&node.target, CHANGED, &mut rng);
    let target = client.snapshot("target", &node.id).await.unwrap().snapshot_id;

    println!("\n{before} blocks written before the first snapshot");
    table::print(&[
        Row::measure("GetMetadataDelta", runs, async || delta(client, &base, &target).await).await,
        Row::measure("GetMetadataAllocated", runs, async || allocated(client, &target).await).await,
    ]);

    node.down().await;
    for snapshot in [base, target] {
        client.delete_snapshot(&snapshot).await.unwrap();
    }
    client.delete(&node.id).await.unwrap();
}

fn scatter(device: &Path, blocks: u64, rng: &mut Rng) {
    let file = File::options().write(true).open(device).expect("open the device");
    for _ in 0..blocks {
        let offset = rng.u64(..VOLUME / BLOCK) * BLOCK;
        let block = (offset + 1).to_le_bytes().repeat(512);
        file.write_all_at(&block, offset).expect("write a block");
    }
    file.sync_all().expect("sync the device");
}

pub(crate) async fn delta(client: &Client, base: &str, target: &str) -> usize {
    let request = v1::GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        ..v1::GetMetadataDeltaRequest::default()
    };
    let answer = client.snapshot_metadata().get_metadata_delta(request).await;
    count(answer.expect("a stream").into_inner(), |message| message.block_metadata.len()).await
}

pub(crate) async fn allocated(client: &Client, snapshot: &str) -> usize {
    let request = v1::GetMetadataAllocatedRequest {
        snapshot_id: snapshot.to_owned(),
        ..v1::GetMetadataAllocatedRequest::default()
    };
    let answer = client.snapshot_metadata().get_metadata_allocated(request).await;
    count(answer.expect("a stream").into_inner(), |message| message.block_metadata.len()).await
}

async fn count<Message>(
    mut stream: Streaming<Message>,
    ranges: impl Fn(&Message) -> usize,
) -> usize {
    let mut sum = 0;
    while let Some(message) = stream.message().await.expect("a stream without errors") {
        sum += ranges(&message);
    }
    sum
}
