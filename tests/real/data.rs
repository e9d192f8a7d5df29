//! Snapshots, restores and clones keep data byte for byte, and leave their source alone.

use std::path::Path;

use orlop_sys::filesystem::probe;
use orlop_tests::*;

const VOLUME: u64 = 320 * MIB;
const DATA: u64 = 6 * MIB;
const PART: u64 = 2 * MIB;

on_every_pool!(
    copies_hold_the_data_of_their_instant,
    a_snapshot_outlives_its_volume,
    a_larger_restore_has_its_full_size,
    clones_of_clones_are_independent,
);

fn uses() -> [v1::VolumeCapability; 4] {
    [mount("xfs"), mount("ext4"), mount("btrfs"), block()]
}

/// Names for things made for one of the uses.
fn named(what: &str, capability: &v1::VolumeCapability) -> String {
    format!("{what} {}", label(capability))
}

fn label(capability: &v1::VolumeCapability) -> String {
    match &capability.access_type {
        Some(v1::volume_capability::AccessType::Mount(mount)) => mount.fs_type.clone(),
        Some(v1::volume_capability::AccessType::Block(_)) | None => "block".to_owned(),
    }
}

async fn copies_hold_the_data_of_their_instant(pool: PoolFs) {
    let pool = TestPool::new(pool, 12 * GIB);
    let daemon = Daemon::start(&pool).await;
    for capability in uses() {
        check_copies(&daemon.client(), &capability).await;
    }
}

/// Kernels before 6.7 take two btrfs of one UUID for one.
#[tokio::test(flavor = "multi_thread")]
async fn copied_btrfs_has_a_new_uuid() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = |name: &str| client.create(name).size(VOLUME).fs("btrfs");
    let source = client.on_node(&create("source").done().await, mount("btrfs"));
    source.up().await;
    Pattern::new(1).write(&source.data_path(), DATA);
    source.down().await;
    let clone = create("clone").from_volume(&source.id).done().await;
    let clone = client.on_node(&clone, mount("btrfs"));
    let identities = || {
        let image = |node: &OnNode| pool.volume_data(&node.id);
        [&source, &clone].map(|node| probe(&image(node)).unwrap())
    };
    let [original, copied] = identities();
    assert_eq!(original, copied, "a copy is byte for byte");
    clone.up().await;
    Pattern::new(1).check(&clone.data_path(), DATA);
    clone.down().await;
    let [unchanged, renewed] = identities();
    assert_eq!(original, unchanged);
    assert_ne!(original, renewed);
}

/// All three are mounted on one node at once, which btrfs and XFS only allow if copies do not
/// pass for their source.
async fn check_copies(client: &Client, capability: &v1::VolumeCapability) {
    let (first, second, third) = (Pattern::new(1), Pattern::new(2), Pattern::new(3));
    let create = |what: &str| {
        client.create(&named(what, capability)).size(VOLUME).capability(capability.clone())
    };
    let volume = create("source").done().await;
    let source = client.on_node(&volume, capability.clone());
    source.up().await;
    first.write(&source.data_path(), DATA);
    let snapshot = client.snapshot(&named("snapshot", capability), &source.id).await.unwrap();

    second.write_at(&source.data_path(), PART, PART);
    let clone = create("clone").from_volume(&source.id).done().await;
    let restored = create("restored").from_snapshot(&snapshot.snapshot_id);
    let restored = restored.done().await;
    let clone = client.on_node(&clone, capability.clone());
    let restored = client.on_node(&restored, capability.clone());
    clone.up().await;
    restored.up().await;

    let assert_changed = |path: &Path| {
        first.check(path, PART);
        second.check_at(path, PART, PART);
        first.check_at(path, 2 * PART, DATA - 2 * PART);
    };
    first.check(&restored.data_path(), DATA);
    assert_changed(&clone.data_path());
    assert_changed(&source.data_path());

    third.write(&restored.data_path(), DATA);
    second.write_at(&clone.data_path(), 0, PART);
    assert_changed(&source.data_path());
    let again = create("again").from_snapshot(&snapshot.snapshot_id);
    let again = client.on_node(&again.done().await, capability.clone());
    again.up().await;
    first.check(&again.data_path(), DATA);
    // A copy is what it is said to be also when it is used next.
    restored.down().await;
    restored.up().await;
    third.check(&restored.data_path(), DATA);

    for node in [&source, &clone, &restored, &again] {
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
}

async fn a_snapshot_outlives_its_volume(pool: PoolFs) {
    let pool = TestPool::new(pool, 12 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in uses() {
        let create =
            |what: &str| client.create(&named(what, &capability)).capability(capability.clone());
        let volume = create("source").size(VOLUME).done().await;
        let source = client.on_node(&volume, capability.clone());
        source.up().await;
        Pattern::new(4).write(&source.data_path(), DATA);
        source.down().await;
        let snapshot = client.snapshot(&named("snapshot", &capability), &source.id).await.unwrap();
        client.delete(&source.id).await.unwrap();

        let listed = client.list_snapshots().await.unwrap();
        assert!(listed.contains(&snapshot), "it is not listed any more");
        let restored = create("restored").from_snapshot(&snapshot.snapshot_id);
        let restored = client.on_node(&restored.done().await, capability.clone());
        client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        restored.up().await;
        Pattern::new(4).check(&restored.data_path(), DATA);
        restored.down().await;
        client.delete(&restored.id).await.unwrap();
    }
    assert_eq!(pool.entries("volumes"), [""; 0]);
    assert_eq!(pool.entries("snapshots"), [""; 0]);
    assert_eq!(pool.entries("trash"), [""; 0]);
}

/// CV-15, CV-16, NP-21; read-only uses too, although nothing grows while mounted read-only.
async fn a_larger_restore_has_its_full_size(pool: PoolFs) {
    let pool = TestPool::new(pool, 12 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in uses() {
        let create =
            |what: &str| client.create(&named(what, &capability)).capability(capability.clone());
        let volume = create("source").size(VOLUME).done().await;
        let source = client.on_node(&volume, capability.clone());
        source.up().await;
        Pattern::new(5).write(&source.data_path(), DATA);
        let snapshot =
            client.snapshot(&named("snapshot", &capability), &source.id).await.unwrap().snapshot_id;
        source.down().await;

        let reader = capability.clone().mode(Mode::SingleNodeReaderOnly);
        for (what, capability) in [("writable", capability.clone()), ("read-only", reader)] {
            let restored = create(what).from_snapshot(&snapshot).size(2 * VOLUME);
            let restored = restored.capability(capability.clone()).done().await;
            assert_eq!(restored.capacity_bytes, int(2 * VOLUME));
            let restored = client.on_node(&restored, capability.clone());
            restored.up().await;
            assert_size(&restored, 2 * VOLUME);
            Pattern::new(5).check(&restored.data_path(), DATA);
            restored.down().await;
            client.delete(&restored.id).await.unwrap();
        }
        client.delete(&source.id).await.unwrap();
        client.delete_snapshot(&snapshot).await.unwrap();
    }
}

/// Each generation adds to what it got; in the end only the last one is left.
async fn clones_of_clones_are_independent(pool: PoolFs) {
    const GENERATIONS: u64 = 5;
    let pool = TestPool::new(pool, 12 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in uses() {
        let mut parent: Option<OnNode> = None;
        for generation in 0..GENERATIONS {
            let create = client
                .create(&named(&format!("generation {generation}"), &capability))
                .size(VOLUME)
                .capability(capability.clone());
            let create = match &parent {
                Some(parent) => create.from_volume(&parent.id),
                None => create,
            };
            let child = client.on_node(&create.done().await, capability.clone());
            if let Some(parent) = parent.take() {
                parent.down().await;
                client.delete(&parent.id).await.unwrap();
            }
            child.up().await;
            if generation == 0 {
                Pattern::new(0).write(&child.data_path(), GENERATIONS * MIB);
            }
            let own = Pattern::new(generation);
            own.write_at(&child.data_path(), generation * MIB, MIB);
            parent = Some(child);
        }
        let last = parent.expect("a last generation");
        for generation in 0..GENERATIONS {
            Pattern::new(generation).check_at(&last.data_path(), generation * MIB, MIB);
        }
        last.down().await;
        client.delete(&last.id).await.unwrap();
    }
}

/// What a raw device's user wrote is in the snapshot, even if only the kernel's memory has it.
#[tokio::test(flavor = "multi_thread")]
async fn buffered_writes_to_a_device_are_in_its_snapshot() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("source").size(64 * MIB).block().done().await;
    let source = client.on_node(&volume, block());
    source.up().await;
    let device = std::fs::File::options().write(true).open(&source.target);
    let device = device.unwrap();
    let bytes = Pattern::new(6).bytes(0, 1 << 20);
    std::os::unix::fs::FileExt::write_all_at(&device, &bytes, 0).unwrap();

    let snapshot = client.snapshot("snapshot", &source.id).await.unwrap();
    let restored = client.create("restored").block();
    let restored = restored.from_snapshot(&snapshot.snapshot_id).done().await;
    let restored = client.on_node(&restored, block());
    restored.up().await;
    Pattern::new(6).check(&restored.target, MIB);
    assert!(is_all_zero(&restored.target, MIB, 63 * MIB));

    drop(device);
    source.down().await;
    restored.down().await;
}
