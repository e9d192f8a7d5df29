//! Pools that were moved, exchanged or restored between two starts, and records that were mixed up,
//! while volumes are in use: each id finds its own data or is refused, and nothing is deleted.

use std::fs;
use std::path::{Path, PathBuf};

use orlop_sys::mounts::{self, BindAccess};
use orlop_tests::*;

use crate::restart::in_use::{InUse, in_use, take_down};

const VOLUME: u64 = 64 * MIB;
const DATA: u64 = 4 * MIB;

/// Unmounted when it is dropped, also by a test that fails.
struct Bound(PathBuf);

impl Bound {
    fn of(shown: &Path, point: PathBuf) -> Self {
        mounts::bind(shown, &point, BindAccess::ReadWrite).unwrap();
        Self(point)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = mounts::ensure_unmounted(&self.0);
    }
}

/// A raw volume with data that no other volume has.
async fn written(create: Create, client: &Client, seed: u64) -> OnNode {
    let node = client.on_node(&create.size(VOLUME).block().done().await, block());
    node.up().await;
    Pattern::new(seed).write(&node.target, DATA);
    node
}

/// Two volumes of a pool, of which the second is not in use; with the seeds of their data.
async fn volumes_on(client: &Client, pool: &str, seed: u64) -> [(OnNode, u64); 2] {
    let create = |name: &str| client.create(&format!("{name} on {pool}")).parameter("pool", pool);
    let used = written(create("used"), client, seed).await;
    let unused = written(create("unused"), client, seed + 1).await;
    unused.down().await;
    [(used, seed), (unused, seed + 1)]
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_that_were_exchanged_keep_their_volumes() {
    needs_root!();
    let one = TestPool::new(PoolFs::Directory, 0);
    let other = one.beside("other", PoolFs::Directory, 0);
    let mut daemon = Launch::on_several(&[("one", &one, ""), ("other", &other, "")]).start().await;
    let client = daemon.client();
    let volumes =
        [volumes_on(&client, "one", 1).await, volumes_on(&client, "other", 11).await].concat();
    let check = async || {
        for (node, seed) in &volumes {
            node.up().await;
            Pattern::new(*seed).check(&node.target, DATA);
            assert!(!client.condition(&node.id).await.unwrap().abnormal);
        }
        assert_eq!(client.list_volumes().await.unwrap().len(), volumes.len());
        for (unused, _) in volumes.iter().skip(1).step_by(2) {
            unused.down().await;
        }
    };

    // By their paths in the configuration, under the names of each other.
    daemon.terminate();
    drop(Launch::on_several(&[("one", &other, ""), ("other", &one, "")]));
    daemon.restart().await;
    check().await;

    // And then the directories themselves.
    daemon.kill9();
    let aside = one.scratch().join("aside");
    fs::rename(&one.path, &aside).unwrap();
    fs::rename(&other.path, &one.path).unwrap();
    fs::rename(&aside, &other.path).unwrap();
    daemon.restart().await;
    check().await;

    for (node, seed) in &volumes {
        node.up().await;
        Pattern::new(*seed).check(&node.target, DATA);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

async fn repeat_calls(used: &[InUse]) {
    for InUse { node, workload } in used {
        workload.goes_on().await;
        node.stage().await.expect("a repeated stage");
        node.publish().await.expect("a repeated publish");
        assert!(!node.stats().await.unwrap().volume_condition.unwrap().abnormal);
        workload.goes_on().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_at_another_path_keeps_its_workloads() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let all =
        [in_use(&client, "mounted", mount("ext4")).await, in_use(&client, "raw", block()).await];
    // Renamed, and then by a second path to it; the devices are still on files at the first.
    daemon.kill9();
    let moved = pool.scratch().join("moved");
    fs::rename(&pool.path, &moved).unwrap();
    let mut renamed = daemon.launch().clone().env("ORLOP_POOL", &moved).start().await;
    client.reconnect();
    repeat_calls(&all).await;

    renamed.kill9();
    let bound = Bound::of(&moved, pool.scratch().ensure_dir("bound"));
    let mut shown = daemon.launch().clone().env("ORLOP_POOL", &bound.0).start().await;
    client.reconnect();
    repeat_calls(&all).await;
    let [mounted, raw] = all;
    take_down(&client, raw).await;
    shown.terminate();

    renamed.restart().await;
    mounted.workload.goes_on().await;
    take_down(&client, mounted).await;
    renamed.terminate();
    drop(bound);
    assert_eq!(daemon.leaks(), [""; 0]);
}

/// The device at its target and the data behind it are as they were.
#[track_caller]
fn assert_untouched(node: &OnNode, device: (u32, u32), seed: u64) {
    assert_eq!(device_at(node), device, "another device is at its target");
    Pattern::new(seed).check(&node.data_path(), DATA);
}

/// The file in which the daemon keeps what it was asked to do with a volume, and what is in it.
struct Record {
    path: PathBuf,
    text: Vec<u8>,
}

impl Record {
    fn of(pool: &TestPool, node: &OnNode) -> Self {
        let path = pool.scratch().join(format!("run/csi.orlop.io/volumes/{}.json", node.id));
        let text = fs::read(&path).unwrap();
        Self { path, text }
    }

    fn replace_by(&self, other: &Self) {
        fs::write(&self.path, &other.text).unwrap();
    }
}

/// Every call that may come for the volume, whatever is answered.
async fn call_everything(client: &Client, own: &OnNode, check: impl Fn()) {
    let other = client.new_target("other");
    let _ = own.stage().await;
    let _ = own.publish().await;
    let _ = own.publish_at(&other, false).await;
    check();
    let _ = client.expand(&own.id, 2 * VOLUME).await;
    let _ = own.expand(2 * VOLUME).await;
    let _ = own.stats().await;
    check();
    let _ = own.unpublish().await;
    let _ = own.unpublish_at(&other).await;
    check();
    let _ = own.unstage().await;
    check();
}

async fn records_mixed_up(capability: v1::VolumeCapability) {
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mut nodes = Vec::new();
    for (name, seed) in [("own", 1), ("victim", 2)] {
        let create = client.create(name).size(VOLUME).capability(capability.clone());
        let node = client.on_node(&create.done().await, capability.clone());
        node.up().await;
        Pattern::new(seed).write(&node.data_path(), DATA);
        nodes.push(node);
    }
    let [own, victim] = &nodes[..] else { unreachable!() };
    let device = device_at(victim);
    let [own_record, victim_record] = [own, victim].map(|node| Record::of(&pool, node));
    for (is_exchanged, restarts) in [(true, false), (true, true), (false, true)] {
        own.up().await;
        own_record.replace_by(&victim_record);
        if is_exchanged {
            victim_record.replace_by(&own_record);
        }
        if restarts {
            daemon.restart().await;
        }
        call_everything(&client, own, || assert_untouched(victim, device, 2)).await;
        if !capability.is_block() {
            // At the paths of the other.
            let _ = client.node_unpublish(&own.id, &victim.target).await;
            let _ = client.node_unstage(&own.id, &victim.staging).await;
            assert_untouched(victim, device, 2);
        }
        expect_code(client.delete(&victim.id).await, Code::FailedPrecondition);
        assert_untouched(victim, device, 2);
        daemon.kill9();
        own_record.replace_by(&own_record);
        victim_record.replace_by(&victim_record);
        daemon.restart().await;
    }
    own.up().await;
    Pattern::new(1).check(&own.data_path(), DATA);
    for node in [own, victim] {
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_record_of_a_raw_volume_is_harmless() {
    needs_root!();
    records_mixed_up(block()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_record_of_a_mounted_volume_is_harmless() {
    needs_root!();
    records_mixed_up(mount("ext4")).await;
}

/// As `rsync -a` does it: what is there is replaced by a rename, and what is newer stays.
fn restore(copy: &Path, pool: &Path) {
    for entry in fs::read_dir(copy).unwrap().map(Result::unwrap) {
        let place = pool.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            let _ = fs::create_dir(&place);
            restore(&entry.path(), &place);
        } else {
            let arriving = place.with_extension("arriving");
            fs::copy(entry.path(), &arriving).unwrap();
            fs::rename(&arriving, &place).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_restored_while_in_use_keeps_newer_data() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let older = written(client.create("older"), &client, 1).await;
    older.down().await;
    let deleted = written(client.create("deleted"), &client, 5).await;
    deleted.down().await;
    let copy = pool.scratch().join("copy");
    let words = ["-a", pool.path.to_str().unwrap(), copy.to_str().unwrap()];
    orlop_sys::tool::run("cp", words).unwrap();

    client.delete(&deleted.id).await.unwrap();
    older.up().await;
    Pattern::new(2).write(&older.target, DATA);
    let newer = written(client.create("newer"), &client, 3).await;
    let unused = written(client.create("unused"), &client, 4).await;
    unused.down().await;
    let snapshot = client.snapshot("newer", &unused.id).await.unwrap().snapshot_id;
    daemon.terminate();
    restore(&copy, &pool.path);
    daemon.restart().await;

    // What is in use shows what its workload wrote: it is the only copy by now.
    let device = device_at(&older);
    Pattern::new(2).check(&older.target, DATA);
    Pattern::new(3).check(&newer.target, DATA);
    expect_code(client.delete(&older.id).await, Code::FailedPrecondition);
    expect_code(client.delete(&newer.id).await, Code::FailedPrecondition);
    daemon.restart().await;
    assert_untouched(&older, device, 2);
    newer.publish().await.unwrap();
    Pattern::new(3).check(&newer.target, DATA);
    newer.down().await;
    for (node, seed) in [(&unused, 4), (&newer, 3), (&deleted, 5)] {
        node.up().await;
        Pattern::new(seed).check(&node.target, DATA);
        node.down().await;
    }
    let restored = client.create("restored").size(VOLUME).block().from_snapshot(&snapshot);
    let restored = client.on_node(&restored.done().await, block());
    restored.up().await;
    Pattern::new(4).check(&restored.target, DATA);
    restored.down().await;

    // Let go of by a person, it is what was restored; no call does that.
    let device = older.device();
    older.unpublish().await.unwrap();
    expect_code(older.unstage().await, Code::FailedPrecondition);
    Pattern::new(2).check(&device, DATA);
    detach_by_hand(&device);
    older.unstage().await.unwrap();
    older.up().await;
    Pattern::new(1).check(&older.target, DATA);
    older.down().await;
}
