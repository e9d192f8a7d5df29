//! Where a pool's space goes, and that it comes back.

use std::path::Path;

use orlop_sys::file::{allocated_bytes, sync_filesystem};
use orlop_sys::tool;
use orlop_tests::*;

const VOLUME: u64 = 320 * MIB;
const FILL: u64 = 64 * MIB;
/// Metadata of the pool's filesystem that comes and goes with its files.
const SLACK: u64 = 8 * MIB;

on_every_pool!(discarding_frees_the_pools_space, thin_allocates_on_write_and_thick_at_creation,);

/// Deleted for good: XFS takes its time with files that are only unlinked.
fn remove(path: &Path) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
    std::fs::remove_file(path).unwrap();
    sync_filesystem(path.parent().unwrap()).unwrap();
}

/// Data that takes space; quicker than a pattern.
fn fill(path: &Path) {
    let bytes = vec![0x5A; usize::try_from(FILL).unwrap()];
    std::fs::write(path, bytes).unwrap();
    sync_filesystem(path).unwrap();
}

async fn discarding_frees_the_pools_space(pool: PoolFs) {
    let pool = TestPool::new(pool, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["xfs", "ext4", "btrfs"] {
        let volume = client.create(fs).size(VOLUME).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        let image = pool.volume_data(&node.id);
        node.up().await;
        fill(&node.data_path());
        let full = allocated_bytes(&image).unwrap();
        assert!(full >= FILL, "{fs}: {full}");
        remove(&node.data_path());
        tool::run("fstrim", [&node.target]).unwrap();
        let trimmed = allocated_bytes(&image).unwrap();
        assert!(trimmed + FILL * 9 / 10 <= full, "{fs}: {full}, then {trimmed}");
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }

    let volume = client.create("block").size(VOLUME).block().done().await;
    let node = client.on_node(&volume, block());
    let image = pool.volume_data(&node.id);
    node.up().await;
    Pattern::new(1).write(&node.target, 16 * MIB);
    assert!(allocated_bytes(&image).unwrap() >= 16 * MIB);
    tool::run("blkdiscard", [&node.target]).unwrap();
    assert!(allocated_bytes(&image).unwrap() <= MIB);
    assert!(is_all_zero(&node.target, 0, 16 * MIB));
    node.down().await;
}

async fn thin_allocates_on_write_and_thick_at_creation(pool: PoolFs) {
    let pool = TestPool::new(pool, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("xfs"), mount("ext4"), mount("btrfs"), block()] {
        let create = client.create("thin").size(VOLUME);
        let thin = create.capability(capability.clone()).done().await;
        let image = pool.volume_data(&thin.volume_id);
        assert!(allocated_bytes(&image).unwrap() <= MIB);
        let node = client.on_node(&thin, capability.clone());
        node.up().await;
        assert!(allocated_bytes(&image).unwrap() < VOLUME / 2);
        node.down().await;
        client.delete(&node.id).await.unwrap();

        let create = client.create("thick").size(VOLUME).thick();
        let thick = create.capability(capability.clone()).done().await;
        let image = pool.volume_data(&thick.volume_id);
        let keeps_all = |when: &str| {
            let allocated = allocated_bytes(&image).unwrap();
            assert!(allocated >= VOLUME, "{when}: {allocated} of {VOLUME}");
        };
        keeps_all("after creation");
        let node = client.on_node(&thick, capability.clone());
        node.up().await;
        keeps_all("formatted");
        Pattern::new(1).write(&node.data_path(), MIB);
        // Neither may succeed in taking space away; that they fail is fine.
        if capability.is_block() {
            let _ = tool::run("blkdiscard", [&node.target]);
        } else {
            remove(&node.data_path());
            let _ = tool::run("fstrim", [&node.target]);
        }
        keeps_all("discarded");
        client.expand(&node.id, 2 * VOLUME).await.unwrap();
        assert!(allocated_bytes(&image).unwrap() >= 2 * VOLUME);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

async fn available(client: &Client) -> u64 {
    let capacity = client.capacity().await.unwrap();
    u64::try_from(capacity.available_capacity).unwrap()
}

/// GC-06: a promise counts, whether or not it is used; a deleted one does not.
#[tokio::test(flavor = "multi_thread")]
async fn capacity_is_what_can_still_be_created() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let empty = available(&client).await;
    assert!(empty < 4 * GIB && empty > 3 * GIB, "{empty}");
    let close_to = |found: u64, wanted: u64| found.abs_diff(wanted) <= SLACK;

    let thin = client.create("thin").size(GIB).block().done().await;
    assert!(close_to(available(&client).await, empty - GIB));
    let thick = client.create("thick").size(GIB).block().thick();
    let thick = thick.done().await;
    assert!(close_to(available(&client).await, empty - 2 * GIB));
    // What is written was promised before. It may count twice for a while, but never as free.
    let node = client.on_node(&thin, block());
    node.up().await;
    Pattern::new(1).write(&node.target, 16 * MIB);
    loop {
        let found = available(&client).await;
        if close_to(found, empty - 2 * GIB) {
            break;
        }
        assert!(found < empty - 2 * GIB, "{found} of {empty}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    node.down().await;
    client.delete(&thin.volume_id).await.unwrap();
    client.delete(&thick.volume_id).await.unwrap();
    assert!(close_to(available(&client).await, empty));
}

/// GC-10, for thin and thick: it works, and one MiB more does not.
#[tokio::test(flavor = "multi_thread")]
async fn largest_volume_is_exact() {
    needs_root!();
    for fs in [PoolFs::Xfs, PoolFs::Btrfs] {
        let pool = TestPool::new(fs, 2 * GIB);
        let daemon = Daemon::start(&pool).await;
        let client = daemon.client();
        let other = client.create("other").size(VOLUME).block().done().await;
        for provisioning in ["thin", "thick"] {
            let request = v1::GetCapacityRequest {
                parameters: [("provisioning".into(), provisioning.into())].into(),
                ..v1::GetCapacityRequest::default()
            };
            let capacity = client.capacity_for(request).await.unwrap();
            let largest = capacity.maximum_volume_size.expect("a largest size");
            let largest = u64::try_from(largest).unwrap();
            assert!(largest > GIB && largest < 2 * GIB - VOLUME, "{largest}");
            let create = |bytes| {
                let create = client.create("largest").block().size(bytes);
                create.parameter("provisioning", provisioning)
            };
            let refused = create(largest + MIB).send().await.unwrap_err();
            let codes = [Code::OutOfRange, Code::ResourceExhausted];
            assert!(codes.contains(&refused.code()), "{provisioning}: {refused}");
            let volume = create(largest).done().await;
            assert_eq!(volume.capacity_bytes, int(largest));
            client.delete(&volume.volume_id).await.unwrap();
        }
        client.delete(&other.volume_id).await.unwrap();
    }
}

/// GC-13, GC-14: it works as a limit, down to a filesystem that can be used.
#[tokio::test(flavor = "multi_thread")]
async fn the_smallest_volume_can_be_used() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("xfs"), mount("ext4"), mount("btrfs"), mount(""), block()] {
        let request = v1::GetCapacityRequest {
            volume_capabilities: vec![capability.clone()],
            ..v1::GetCapacityRequest::default()
        };
        let capacity = client.capacity_for(request).await.unwrap();
        let smallest = capacity.minimum_volume_size.expect("a smallest size");
        let smallest = u64::try_from(smallest).unwrap();
        let create = |bytes| client.create("volume").capability(capability.clone()).limit(bytes);
        expect_code(create(smallest - 1).send().await, Code::OutOfRange);
        let volume = create(smallest).done().await;
        assert_eq!(volume.capacity_bytes, int(smallest));
        let node = client.on_node(&volume, capability.clone());
        node.up().await;
        Pattern::new(1).write(&node.data_path(), MIB / 2);
        Pattern::new(1).check(&node.data_path(), MIB / 2);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

/// Below the floor nothing new is made, and every volume says so; above it all is well again.
#[tokio::test(flavor = "multi_thread")]
async fn the_floor_is_kept_free() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let daemon = Launch::on(&pool).env("ORLOP_POOL_FLOOR", "1GiB").start().await;
    let client = daemon.client();
    let volume = client.create("volume").size(64 * MIB).block().done().await;
    assert!(available(&client).await < GIB);
    let create = client.create("thick").size(GIB).block().thick();
    expect_code(create.send().await, Code::ResourceExhausted);
    assert!(!client.condition(&volume.volume_id).await.unwrap().abnormal);

    let ballast = std::fs::File::create(pool.path.join("ballast")).unwrap();
    orlop_sys::file::preallocate(&ballast, 0, GIB).unwrap();
    assert_eq!(available(&client).await, 0);
    let create = client.create("small").size(MIB).block();
    expect_code(create.send().await, Code::ResourceExhausted);
    let snapshot = client.snapshot("snapshot", &volume.volume_id).await;
    expect_code(snapshot, Code::ResourceExhausted);
    let grown = client.expand(&volume.volume_id, 128 * MIB).await;
    expect_code(grown, Code::ResourceExhausted);
    let condition = client.condition(&volume.volume_id).await.unwrap();
    assert!(condition.abnormal && condition.message.contains("floor"));

    ballast.set_len(0).unwrap();
    assert!(!client.condition(&volume.volume_id).await.unwrap().abnormal);
    client.create("small").size(MIB).block().done().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn space_is_promised_once_without_overcommit() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    client.create("first").size(GIB).block().done().await;
    let second = || client.create("second").size(GIB).block();
    let refused = expect_code(second().send().await, Code::ResourceExhausted);
    assert!(refused.message().contains("default"), "the pool is not named");
    let without = available(&client).await;

    daemon.terminate();
    let generous = daemon.launch().clone().env("ORLOP_POOL_OVERCOMMIT", "3");
    let generous = generous.start().await;
    assert!(available(&client).await > without + 3 * GIB);
    second().done().await;
    // No overcommit makes space that thick volumes take at once.
    let thick = client.create("thick").size(2 * GIB).block().thick();
    expect_code(thick.send().await, Code::ResourceExhausted);
    drop(generous);
}
