//! Snapshots of volumes on two nodes at one instant.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_tests::*;

use crate::router::cluster::Cluster;

pub(super) const SIZE: u64 = 320 * MIB;
const ROUNDS: usize = 5;

/// In place, and durable when it returns.
pub(super) fn write_number(path: &Path, number: u64) {
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, format!("{number:020}").as_bytes(), 0).unwrap();
    file.sync_all().unwrap();
}

fn number_in(path: &Path) -> u64 {
    fs::read_to_string(path).unwrap().parse().unwrap()
}

/// A workload writes each number to one node and then to the other: at any instant the second is at most one
/// behind, and never ahead.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_over_two_nodes_is_of_one_instant() {
    needs_root!();
    let cluster = Cluster::start(PoolFs::Xfs).await;
    let client = cluster.client();
    let used = cluster.mounted_volumes(SIZE).await;
    let paths: Vec<_> = used.iter().map(|it| it.target.join("number")).collect();
    paths.iter().for_each(|path| write_number(path, 0));
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, written) = (Arc::clone(&stop), paths.clone());
    let writing = std::thread::spawn(move || {
        let mut number = 0;
        while !stopped.load(Ordering::SeqCst) {
            number += 1;
            written.iter().for_each(|path| write_number(path, number));
        }
        number
    });
    let sources: Vec<String> = used.iter().map(|it| it.id.clone()).collect();
    let mut groups = Vec::new();
    for round in 0..ROUNDS {
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: format!("group-{round}"),
            source_volume_ids: sources.clone(),
            ..Default::default()
        };
        let made = client.group_controller().create_volume_group_snapshot(request).await.unwrap();
        groups.push(made.into_inner().group_snapshot.unwrap());
    }
    stop.store(true, Ordering::SeqCst);
    let last = writing.join().unwrap();
    let mut seen = Vec::new();
    for (round, group) in groups.iter().enumerate() {
        let mut numbers = Vec::new();
        for (node, source) in cluster.nodes.iter().zip(&sources) {
            let member = group.snapshots.iter().find(|it| it.source_volume_id == *source).unwrap();
            let restored = client
                .create(&format!("restored-{round}-{}", node.name))
                .size(SIZE)
                .from_snapshot(&member.snapshot_id)
                .done()
                .await;
            let there = node.daemon.client().on_node(&restored, mount("xfs"));
            there.stage().await.unwrap();
            there.publish().await.unwrap();
            numbers.push(number_in(&there.target.join("number")));
            there.unpublish().await.unwrap();
            there.unstage().await.unwrap();
            client.delete(&restored.volume_id).await.unwrap();
        }
        assert!(numbers[0] == numbers[1] || numbers[0] == numbers[1] + 1, "{numbers:?}");
        seen.push(numbers);
        let request = v1::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id.clone(),
            snapshot_ids: group.snapshots.iter().map(|it| it.snapshot_id.clone()).collect(),
            ..Default::default()
        };
        client.group_controller().delete_volume_group_snapshot(request).await.unwrap();
    }
    report(&format!("router: numbers in groups over two nodes {seen:?}, last written {last}"));
    for on_node in &used {
        on_node.unpublish().await.unwrap();
        on_node.unstage().await.unwrap();
    }
}

/// Its filesystem must not stay frozen.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_router_leaves_no_filesystem_frozen() {
    needs_root!();
    let mut cluster = Cluster::start(PoolFs::Xfs).await;
    let used = cluster.mounted_volumes(SIZE).await;
    let sources: Vec<String> = used.iter().map(|it| it.id.clone()).collect();
    let mut random = Rng::with_seed(15);
    for round in 0..10 {
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: format!("group-{round}"),
            source_volume_ids: sources.clone(),
            ..Default::default()
        };
        let mut groups = cluster.client().group_controller();
        let first = request.clone();
        let calling = tokio::spawn(async move { groups.create_volume_group_snapshot(first).await });
        tokio::time::sleep(std::time::Duration::from_micros(random.u64(..30_000))).await;
        cluster.router.kill9();
        let _ = calling.await.unwrap();
        for (number, on_node) in used.iter().enumerate() {
            write_number(
                &on_node.target.join("number"),
                round * 2 + u64::try_from(number).unwrap(),
            );
        }
        cluster.router.restart().await;
        let whole = cluster.group_in_the_end(&request.name, &sources).await;
        assert_eq!(whole.snapshots.len(), 2, "round {round}");
    }
    assert_eq!(cluster.client().list_snapshots().await.unwrap().len(), 20);
    for on_node in &used {
        on_node.unpublish().await.unwrap();
        on_node.unstage().await.unwrap();
    }
}
