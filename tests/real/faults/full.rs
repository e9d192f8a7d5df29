//! No space, no inodes.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use orlop_sys::file;
use orlop_tests::*;

use crate::faults::is_abnormal;

const VOLUME: u64 = 32 * MIB;
const NODE: &str = "test-node";

/// Takes all space there is, to the last block.
pub(super) fn fill(path: &Path) {
    let hog = File::create_new(path).unwrap();
    let mut taken = 0;
    let mut piece = file::space(path).unwrap().free;
    while piece >= 4096 {
        match file::preallocate(&hog, taken, piece) {
            Ok(()) => taken += piece,
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                piece /= 2;
            }
        }
    }
    file::sync_filesystem(path).unwrap();
}

/// XFS takes its time with files that are only unlinked.
fn remove(path: &Path) {
    File::options().write(true).open(path).unwrap().set_len(0).unwrap();
    std::fs::remove_file(path).unwrap();
    file::sync_filesystem(path.parent().unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_on_xfs_without_space() {
    needs_root!();
    without_space(TestPool::new(PoolFs::Xfs, GIB)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_on_ext4_without_space() {
    needs_root!();
    without_space(TestPool::directory_of(512 * MIB)).await;
}

async fn without_space(pool: TestPool) {
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = |name| client.create(name).size(VOLUME).block();
    let volume = create("volume").done().await;
    let attached = create("attached").done().await;
    client.controller_publish(&attached.volume_id, NODE, block(), false).await.unwrap();
    let node = client.on_node(&volume, block());
    let both = [volume.volume_id.clone(), attached.volume_id.clone()];
    let cut = client.group_snapshot("cut", &both).await.unwrap();
    let mut groups = VolumeGroups::of(&client);
    let group = groups.create("group", &[&both[1]]).await.unwrap().volume_group_id;
    node.up().await;
    Pattern::new(1).write(&node.target, MIB);
    assert!(!is_abnormal(&client, &node.id).await);

    let hog = pool.path.join("hog");
    fill(&hog);
    assert!(is_abnormal(&client, &node.id).await);
    assert_eq!(client.capacity().await.unwrap().available_capacity, 0);
    assert!(client.probe().await.unwrap(), "it serves all the same");
    expect_code(create("another").send().await, Code::ResourceExhausted);
    expect_code(create("thick").thick().send().await, Code::ResourceExhausted);
    expect_code(client.snapshot("snapshot", &node.id).await, Code::ResourceExhausted);
    expect_code(client.expand(&node.id, 2 * VOLUME).await, Code::ResourceExhausted);
    // The workload gets ENOSPC, and keeps what it has.
    let bytes = Pattern::new(2).bytes(0, 1 << 20);
    write_direct(&node.target, 8 * MIB, &bytes).unwrap_err();
    Pattern::new(1).check(&node.target, MIB);
    // What gives space back is possible.
    groups.modify(&group, &[]).await.unwrap();
    groups.delete(&group).await.unwrap();
    client.delete_group_snapshot(&cut.group_snapshot_id, &cut.member_ids()).await.unwrap();
    assert_eq!(client.list_snapshots().await.unwrap(), []);
    client.controller_unpublish(&attached.volume_id, NODE).await.unwrap();
    client.delete(&attached.volume_id).await.unwrap();

    remove(&hog);
    assert!(!is_abnormal(&client, &node.id).await);
    write_direct(&node.target, 8 * MIB, &bytes).unwrap();
    let another = create("another").done().await;
    client.snapshot("snapshot", &node.id).await.unwrap();
    client.expand(&node.id, 2 * VOLUME).await.unwrap();
    node.down().await;
    for id in [&node.id, &another.volume_id] {
        client.delete(id).await.unwrap();
    }
}

/// After a power cut the filesystem of a volume replays its log when it is mounted, which may need space. Whichever it is,
/// the pool is what is full.
#[tokio::test(flavor = "multi_thread")]
async fn log_replay_refused_by_a_full_pool_succeeds_later() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let launch = Launch::on(&pool).env("ORLOP_POOL_OVERCOMMIT", "1000");
    let mut daemon = launch.env("ORLOP_POOL_FLOOR", "0%").start().await;
    let client = daemon.client();
    let hog = pool.path.join("hog");
    let mut refused = 0;
    for (fs, size) in [("ext4", 16 * MIB), ("xfs", 300 * MIB), ("btrfs", 128 * MIB)] {
        let volume = client.create(fs).size(size).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        node.up().await;
        let files = (0..60).map(|number| (number, node.target.join(number.to_string())));
        let files: Vec<_> = files.collect();
        for (number, path) in &files {
            Pattern::new(*number).write(path, 20_000);
            File::open(path).unwrap().sync_all().unwrap();
        }
        let data = pool.volume_data(&node.id);
        let cut = data.with_extension("cut");
        let copy = File::create_new(&cut).unwrap();
        file::try_clone_file(&File::open(&data).unwrap(), &copy).unwrap();
        drop(copy);
        node.down().await;
        daemon.terminate();
        std::fs::rename(&cut, &data).unwrap();
        daemon.restart().await;

        fill(&hog);
        if let Err(status) = node.stage().await {
            assert_eq!(status.code(), Code::ResourceExhausted, "{fs}: {status}");
            refused += 1;
        }
        remove(&hog);
        node.up().await;
        for (number, path) in &files {
            Pattern::new(*number).check(path, 20_000);
        }
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    assert!(refused > 0, "no log needed space");
}

/// A filesystem may have room for data, but for no further file.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_inodes() {
    needs_root!();
    let pool = TestPool::directory_of(64 * MIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let create = |name| client.create(name).size(4 * MIB).block();
    let volume = create("volume").done().await;
    let attached = create("attached").done().await;
    client.controller_publish(&attached.volume_id, NODE, block(), false).await.unwrap();

    let hogs = pool.path.join("hogs");
    std::fs::create_dir(&hogs).unwrap();
    let mut number = 0;
    while File::create_new(hogs.join(format!("{number}"))).is_ok() {
        number += 1;
    }
    assert_eq!(file::space(&pool.path).unwrap().inodes_free, 0);
    let condition = client.condition(&volume.volume_id).await.unwrap();
    assert!(condition.abnormal, "{condition:?}");
    assert!(client.probe().await.unwrap(), "it serves all the same");
    expect_code(create("another").send().await, Code::ResourceExhausted);
    expect_code(client.snapshot("snapshot", &volume.volume_id).await, Code::ResourceExhausted);
    assert_eq!(pool.entries("staging"), [""; 0]);
    // What gives inodes back is possible.
    client.controller_unpublish(&attached.volume_id, NODE).await.unwrap();
    client.delete(&attached.volume_id).await.unwrap();

    file::remove_tree(&hogs).unwrap();
    assert!(!is_abnormal(&client, &volume.volume_id).await);
    create("another").done().await;
    client.snapshot("snapshot", &volume.volume_id).await.unwrap();
}

/// Of what the daemons of this test have said so far.
fn lines_with(daemon: &Daemon, level: &str, words: &str) -> usize {
    let log = daemon.log();
    log.lines().filter(|line| line.contains(level) && line.contains(words)).count()
}

/// Writes as a workload does that never looks at an error, until the disk below takes no more.
fn write_until_refused(path: &Path) {
    let file = File::create_new(path).unwrap();
    let piece = Pattern::new(1).bytes(0, 8 << 20);
    for _ in 0..100 {
        let written = (&file).write_all(&piece).and_then(|()| file.sync_data());
        if written.is_err() {
            return;
        }
    }
    panic!("a volume took more than its pool has");
}

/// Nothing is wrong with a mount whose pool is full, until what was written is written back.
#[tokio::test(flavor = "multi_thread")]
async fn node_reports_a_full_overcommitted_pool() {
    needs_root!();
    let pool = TestPool::directory_of(512 * MIB);
    let mut daemon = Launch::on(&pool).env("ORLOP_POOL_OVERCOMMIT", "10").start().await;
    let client = daemon.client();
    let greedy = client.create("greedy").size(GIB).fs("ext4").done().await;
    let greedy = client.on_node(&greedy, mount("ext4"));
    let raw = client.on_node(&client.create("raw").size(VOLUME).block().done().await, block());
    greedy.up().await;
    raw.up().await;
    for node in [&greedy, &raw] {
        assert!(!node.stats().await.unwrap().volume_condition.unwrap().abnormal);
    }
    assert_eq!(lines_with(&daemon, "WARN", "below its floor"), 0);

    write_until_refused(&greedy.data_path());
    for node in [&greedy, &raw] {
        let condition = node.stats().await.unwrap().volume_condition.unwrap();
        assert!(condition.abnormal, "{}: {}", node.id, condition.message);
        assert!(client.condition(&node.id).await.unwrap().abnormal);
    }
    let of_raw = raw.stats().await.unwrap().volume_condition.unwrap();
    assert!(of_raw.message.contains("below its floor"), "{}", of_raw.message);
    assert_eq!(of_raw, client.condition(&raw.id).await.unwrap(), "both answers agree");
    assert_eq!(lines_with(&daemon, "WARN", "below its floor"), 1);
    daemon.restart().await;
    assert_eq!(lines_with(&daemon, "WARN", "below its floor"), 2, "logged by each start");

    greedy.down().await;
    client.delete(&greedy.id).await.unwrap();
    assert!(!raw.stats().await.unwrap().volume_condition.unwrap().abnormal);
    assert_eq!(lines_with(&daemon, "INFO", "above its floor again"), 1);
    raw.down().await;
}
