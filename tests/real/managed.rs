//! A managed pool: an XFS image on a filesystem that cannot share extents.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_sys::mounts;
use orlop_tests::*;

const VOLUME: u64 = 320 * MIB;
const DATA: u64 = 2 * MIB;
const TIMEOUT: Duration = Duration::from_secs(60);

fn launch(pool: &TestPool, size: &str) -> Launch {
    Launch::on(pool).env("ORLOP_POOL_IMAGE_SIZE", size)
}

fn mounted_image(pool: &TestPool) -> Option<PathBuf> {
    let all = mounts::all_mounts().unwrap().into_iter();
    let mut below = all.map(|entry| entry.mount_point);
    below.find(|point| point.starts_with(&pool.path))
}

/// Space that the whole pool takes of the filesystem around it.
fn space_taken(pool: &TestPool) -> u64 {
    let entries = std::fs::read_dir(&pool.path).unwrap();
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| orlop_sys::file::allocated_bytes(&path).unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_in_a_managed_pool_share_their_data() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = launch(&pool, "3GiB").start().await;
    let client = daemon.client();
    let point = mounted_image(&pool).expect("the pool's image is mounted");
    let entry = mounts::mount_at(&point).unwrap().unwrap();
    assert_eq!(entry.fs_type, "xfs");
    for capability in [mount("xfs"), mount("ext4"), mount("btrfs"), block()] {
        let create = |name| client.create(name).size(VOLUME).capability(capability.clone());
        let source = client.on_node(&create("source").done().await, capability.clone());
        source.up().await;
        Pattern::new(1).write(&source.data_path(), 32 * MIB);
        let snapshot = client.snapshot("snapshot", &source.id).await.unwrap();
        let before = orlop_sys::file::space(&point).unwrap().free;
        let restored = create("restored").from_snapshot(&snapshot.snapshot_id);
        let restored = client.on_node(&restored.done().await, capability.clone());
        let taken = before.saturating_sub(orlop_sys::file::space(&point).unwrap().free);
        assert!(taken < 16 * MIB, "a copy of 32 MiB took {taken} bytes");
        restored.up().await;
        Pattern::new(1).check(&restored.data_path(), 32 * MIB);
        for node in [&source, &restored] {
            node.down().await;
            client.delete(&node.id).await.unwrap();
        }
        client.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
    }
    daemon.terminate();
    assert_eq!(mounted_image(&pool), None, "the image stays mounted");
    assert_eq!(daemon.leaks(), [""; 0]);
}

/// A monitoring agent that was started while the pool was served has a copy of its mount.
#[tokio::test(flavor = "multi_thread")]
async fn other_mount_namespace_does_not_keep_a_managed_pool() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = launch(&pool, "1GiB").start().await;
    let volume = daemon.client().create("volume").size(64 * MIB).block().done().await;
    let point = mounted_image(&pool).expect("the pool's image is mounted");
    let holder = MountHolder::of(&[&point]);
    daemon.terminate();
    assert_eq!(daemon.leaks(), [""; 0]);
    assert_eq!(holder.mounts_at(&point), 0);
    daemon.restart().await;
    daemon.client().delete(&volume.volume_id).await.unwrap();
}

/// In a sparse image it would get I/O errors, and the whole pool with it.
#[tokio::test(flavor = "multi_thread")]
async fn thick_volume_survives_a_full_disk_around_its_pool() {
    needs_root!();
    let pool = TestPool::directory_of(GIB);
    let mut daemon = launch(&pool, "512MiB").start().await;
    let client = daemon.client();
    let create = || client.create("volume").size(64 * MIB).block().thick();
    let refused = expect_code(create().send().await, Code::ResourceExhausted);
    let (_, advice) = refused.message().split_once('`').unwrap();
    let (advice, _) = advice.split_once('`').unwrap();
    orlop_sys::tool::run("sh", ["-c", advice]).unwrap();

    let node = client.on_node(&create().done().await, block());
    node.up().await;
    // What is deleted beside it is not given back.
    let other = client.create("other").size(64 * MIB).block().thick().done().await;
    client.delete(&other.volume_id).await.unwrap();
    daemon.terminate();
    daemon.restart().await;
    let filler = File::create(pool.path.join("filler")).unwrap();
    let step = 64 * 1024;
    while orlop_sys::file::preallocate(&filler, filler.metadata().unwrap().len(), step).is_ok() {}
    for seed in 1..4 {
        Pattern::new(seed).write(&node.target, 64 * MIB);
        Pattern::new(seed).check(&node.target, 64 * MIB);
        orlop_sys::file::sync_filesystem(&mounted_image(&pool).unwrap()).unwrap();
    }
    assert!(!client.condition(&node.id).await.unwrap().abnormal);
    let another = client.create("another").size(64 * MIB).block().thick().done().await;
    client.delete(&another.volume_id).await.unwrap();
    node.down().await;
    client.delete(&node.id).await.unwrap();
}

/// Volumes in use hold the image; it goes with the last of them.
#[tokio::test(flavor = "multi_thread")]
async fn managed_pool_in_use_outlives_its_daemon() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = launch(&pool, "2GiB").start().await;
    let client = daemon.client();
    let volume = client.create("volume").size(VOLUME).fs("xfs").done().await;
    let node = client.on_node(&volume, mount("xfs"));
    node.up().await;
    Pattern::new(1).write(&node.data_path(), DATA);
    daemon.terminate();
    Pattern::new(1).check(&node.data_path(), DATA);
    Pattern::new(2).write(&node.data_path(), DATA);
    daemon.restart().await;
    daemon.kill9();
    Pattern::new(2).check(&node.data_path(), DATA);
    daemon.restart().await;
    node.stage().await.unwrap();
    node.publish().await.unwrap();
    assert_eq!(client.list_volumes().await.unwrap().len(), 1);
    node.down().await;

    daemon.terminate();
    assert_eq!(daemon.leaks(), [""; 0]);
    daemon.restart().await;
    node.up().await;
    Pattern::new(2).check(&node.data_path(), DATA);
    node.down().await;
    client.delete(&node.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_pool_is_sparse_frees_space_and_grows() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = launch(&pool, "2GiB").start().await;
    let client = daemon.client();
    let available = async || {
        let capacity = client.capacity().await.unwrap();
        u64::try_from(capacity.available_capacity).unwrap()
    };
    let small = available().await;
    assert!(small < 2 * GIB, "{small}");
    assert!(space_taken(&pool) < 256 * MIB, "the image is not sparse");
    let volume = client.create("volume").size(GIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, 64 * MIB);
    node.down().await;
    let full = space_taken(&pool);
    assert!(full >= 64 * MIB);
    client.delete(&node.id).await.unwrap();
    // Freed in the background, and discarded in the image's journal's own time.
    let deadline = Instant::now() + TIMEOUT;
    while space_taken(&pool) + 48 * MIB > full {
        assert!(Instant::now() < deadline, "nothing was given back");
        orlop_sys::file::sync_filesystem(&mounted_image(&pool).unwrap()).unwrap();
        orlop_sys::tool::run("fstrim", [mounted_image(&pool).unwrap()]).unwrap();
    }

    daemon.terminate();
    let larger = launch(&pool, "4GiB").start().await;
    assert!(available().await > small + GIB);
    drop(larger);
    // Less than it has is not an error: XFS does not shrink.
    let smaller = launch(&pool, "1GiB").start().await;
    assert!(available().await > small + GIB);
    drop(smaller);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_pool_does_not_become_managed() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    client.create("volume").size(VOLUME).block().done().await;
    daemon.terminate();
    let ended = launch(&pool, "2GiB").run_to_end();
    assert_ne!(ended.status.code(), Some(0));
    assert_eq!(daemon.leaks(), [""; 0]);
    daemon.restart().await;
    assert_eq!(client.list_volumes().await.unwrap().len(), 1);
}

/// The floor is a share of the image, also for the disk around it.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_computes_the_floor_like_the_daemon() {
    needs_root!();
    let pool = TestPool::directory_of(2048 * MIB);
    let launch = launch(&pool, "400MiB").env("ORLOP_POOL_FLOOR", "50%");
    let mut daemon = launch.clone().start().await;
    let around = pool.path.join("other");
    let other = File::create(&around).unwrap();
    orlop_sys::file::preallocate(&other, 0, 1280 * MIB).unwrap();
    let volume = daemon.client().create("v").size(16 * MIB).capability(block()).done().await;
    let ran = launch.run(&["doctor"]);
    assert!(ran.status.success(), "{ran:?}");
    assert!(ran.stdout.contains(": sound, 1 volume, 0 snapshots checked"), "{ran:?}");
    daemon.client().delete(&volume.volume_id).await.unwrap();
    daemon.terminate();
}
