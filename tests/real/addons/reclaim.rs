//! Space that a volume does not need goes back to its pool, and nothing else does.

use std::path::Path;

use orlop_sys::file::{allocated_bytes, sync_filesystem};
use orlop_tests::*;
use reclaimspace::reclaim_space_controller_client::ReclaimSpaceControllerClient;
use reclaimspace::reclaim_space_node_client::ReclaimSpaceNodeClient;

const VOLUME: u64 = 320 * MIB;
const DATA: u64 = 8 * MIB;
const WASTE: u64 = 64 * MIB;

on_every_pool!(deleted_files_free_their_space, zeroes_free_their_space);

type Usage = Option<reclaimspace::StorageConsumption>;

/// Before and after, which the image must agree with.
fn check(image: &Path, taken: u64, before: Usage, after: Usage) -> u64 {
    let [before, after] =
        [before, after].map(|usage| u64::try_from(usage.unwrap().usage_bytes).unwrap());
    assert!(taken.abs_diff(before) <= MIB, "{before} bytes, not {taken}");
    let left = allocated_bytes(image).unwrap();
    assert!(left.abs_diff(after) <= MIB, "{after} bytes, not {left}");
    assert!(after + WASTE * 9 / 10 <= before, "{before}, then {after}");
    after
}

async fn deleted_files_free_their_space(fs: PoolFs) {
    let pool = TestPool::new(fs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["xfs", "ext4", "btrfs"] {
        let volume = client.create(fs).size(VOLUME).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        let image = pool.volume_data(&node.id);
        node.up().await;
        Pattern::new(1).write(&node.data_path(), DATA);
        let waste = node.target.join("waste");
        Pattern::new(2).write(&waste, WASTE);
        let taken = allocated_bytes(&image).unwrap();
        // Cut short first: XFS takes its time with files that are only unlinked.
        std::fs::File::options().write(true).open(&waste).unwrap().set_len(0).unwrap();
        std::fs::remove_file(&waste).unwrap();
        sync_filesystem(&node.target).unwrap();

        let request = reclaimspace::NodeReclaimSpaceRequest {
            volume_id: node.id.clone(),
            volume_path: node.target.to_str().unwrap().to_owned(),
            staging_target_path: node.staging.to_str().unwrap().to_owned(),
            volume_capability: Some(node.capability.clone()),
            ..reclaimspace::NodeReclaimSpaceRequest::default()
        };
        let mut reclaim = ReclaimSpaceNodeClient::new(client.channel());
        let answer = reclaim.node_reclaim_space(request).await.unwrap().into_inner();
        check(&image, taken, answer.pre_usage, answer.post_usage);
        Pattern::new(1).check(&node.data_path(), DATA);
        node.down().await;
        node.up().await;
        Pattern::new(1).check(&node.data_path(), DATA);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

async fn zeroes_free_their_space(fs: PoolFs) {
    let pool = TestPool::new(fs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).block().done().await;
    let node = client.on_node(&volume, block());
    let image = pool.volume_data(&node.id);
    let mut reclaim = ReclaimSpaceControllerClient::new(client.channel());
    let request = || reclaimspace::ControllerReclaimSpaceRequest {
        volume_id: node.id.clone(),
        ..reclaimspace::ControllerReclaimSpaceRequest::default()
    };
    node.up().await;
    Pattern::new(1).write_at(&node.target, 0, DATA);
    for at in 0..WASTE / MIB {
        write_direct(&node.target, DATA + at * MIB, &vec![0; 1 << 20]).unwrap();
    }
    Pattern::new(2).write_at(&node.target, DATA + WASTE, DATA);
    expect_code(reclaim.controller_reclaim_space(request()).await, Code::FailedPrecondition);
    node.down().await;
    let taken = allocated_bytes(&image).unwrap();
    assert!(taken >= 2 * DATA + WASTE, "{taken}");

    let answer = reclaim.controller_reclaim_space(request()).await.unwrap().into_inner();
    let after = check(&image, taken, answer.pre_usage, answer.post_usage);
    assert!(after >= 2 * DATA);
    node.up().await;
    Pattern::new(1).check_at(&node.target, 0, DATA);
    assert!(is_all_zero(&node.target, DATA, WASTE));
    Pattern::new(2).check_at(&node.target, DATA + WASTE, DATA);
    assert!(is_all_zero(&node.target, 2 * DATA + WASTE, VOLUME - 2 * DATA - WASTE));
    node.down().await;
    client.delete(&node.id).await.unwrap();
}
