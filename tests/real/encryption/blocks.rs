//! Changed blocks: what the base holds and the changed ranges of the target make the target, as volumes that are restored
//! from them show it.

use std::os::unix::fs::FileExt;

use orlop_tests::*;

use super::*;

const SIZE: u64 = 48 * MIB;

async fn restored(client: &Client, name: &str, snapshot: &str) -> OnNode {
    let volume = encrypted(client.create(name).size(SIZE).block()).from_snapshot(snapshot);
    let node = client.on_node(&volume.done().await, block()).with_key(KEY);
    node.up().await;
    node
}

async fn delta(client: &Client, base: &str, target: &str) -> (i64, Vec<(u64, u64)>) {
    let request = v1::GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        ..Default::default()
    };
    let mut pages =
        client.snapshot_metadata().get_metadata_delta(request).await.unwrap().into_inner();
    let (mut capacity, mut ranges) = (0, Vec::new());
    while let Some(page) = pages.message().await.unwrap() {
        capacity = page.volume_capacity_bytes;
        let range = |block: &v1::BlockMetadata| {
            (block.byte_offset.try_into().unwrap(), block.size_bytes.try_into().unwrap())
        };
        ranges.extend(page.block_metadata.iter().map(range));
    }
    (capacity, ranges)
}

fn contents(path: &Path, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    std::fs::File::open(path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn target_is_rebuilt_from_its_base_and_what_changed() {
    needs_encryption!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let daemon = launch(&pool).start().await;
    let client = daemon.client();
    let node = new_volume(&client, "v", SIZE, block()).await;
    node.up().await;
    Pattern::new(1).write(&node.target, SIZE - HEADER);
    for seed in 0..8 {
        let mut random = Rng::with_seed(seed);
        let base = client.snapshot(&format!("b{seed}"), &node.id).await.unwrap().snapshot_id;
        for _ in 0..6 {
            let length = random.u64(1..64) * 4096;
            let offset = random.u64(0..(SIZE - HEADER - length) / 4096) * 4096;
            Pattern::new(seed + 2).write_at(&node.target, offset, length);
        }
        let target = client.snapshot(&format!("t{seed}"), &node.id).await.unwrap().snapshot_id;
        let (capacity, changed) = delta(&client, &base, &target).await;
        assert_eq!(capacity, int(SIZE - HEADER));
        let total: u64 = changed.iter().map(|(_, length)| length).sum();
        assert!(total > 0 && total < 8 * MIB, "{changed:?}");

        let (from, to) =
            (restored(&client, "from", &base).await, restored(&client, "to", &target).await);
        let mut rebuilt = contents(&from.target, SIZE - HEADER);
        let wanted = contents(&to.target, SIZE - HEADER);
        assert!(rebuilt != wanted, "seed {seed} changes nothing");
        for (offset, length) in changed {
            let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
            rebuilt[range.clone()].copy_from_slice(&wanted[range]);
        }
        assert!(rebuilt == wanted, "seed {seed}: a change is missing");
        for copy in [from, to] {
            copy.down().await;
            client.delete(&copy.id).await.unwrap();
        }
        for snapshot in [base, target] {
            client.delete_snapshot(&snapshot).await.unwrap();
        }
    }
    node.down().await;
    client.delete(&node.id).await.unwrap();
}
