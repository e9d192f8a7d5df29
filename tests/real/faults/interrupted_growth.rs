//! An ext4 volume is grown before it is mounted, and that is interrupted: the tool is killed, or the pool is full.

use std::path::{Path, PathBuf};

use orlop_sys::file;
use orlop_tests::*;

use crate::faults::tools::Covered;

const BEFORE: u64 = 16 * MIB;
const AFTER: u64 = 2000 * MIB;
const FILES: u64 = 60;
const FULLEST: u64 = 60_000;

async fn start(pool: &TestPool) -> Covered {
    let launch =
        Launch::on(pool).env("ORLOP_POOL_OVERCOMMIT", "1000").env("ORLOP_POOL_FLOOR", "0%");
    Covered::start_by(launch, "resize2fs").await
}

/// A volume with files in it, expanded while it is not staged.
async fn expanded(covered: &Covered, name: &str) -> OnNode {
    let client = covered.daemon.client();
    let volume = client.create(name).size(BEFORE).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    for number in 0..FILES {
        let directory = seen(covered, &node.target).join(format!("directory{}", number % 7));
        std::fs::create_dir_all(&directory).unwrap();
        Pattern::new(number).write(&directory.join(number.to_string()), length(number));
    }
    node.down().await;
    client.expand(&node.id, AFTER).await.unwrap();
    node
}

/// As the daemon sees it, which mounts where it alone sees the mounts.
fn seen(covered: &Covered, path: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", covered.daemon.pid()));
    root.join(path.strip_prefix("/").unwrap())
}

/// From less than a block to many of them.
fn length(number: u64) -> u64 {
    1 + number * FULLEST / FILES
}

/// All files are there, byte for byte, in a filesystem that has grown and has nothing to be repaired.
async fn check_whole(covered: &Covered, pool: &TestPool, node: &OnNode, when: &str) {
    node.up().await;
    let target = seen(covered, &node.target);
    for number in 0..FILES {
        let directory = target.join(format!("directory{}", number % 7));
        Pattern::new(number).check(&directory.join(number.to_string()), length(number));
    }
    let lost = std::fs::read_dir(target.join("lost+found")).unwrap();
    assert_eq!(lost.count(), 0, "{when}");
    let total = file::space(&target).unwrap().total;
    assert!(total > AFTER / 4 * 3, "{when}: {total}");
    node.down().await;
    assert!(!is_growing(pool, node), "{when}");
    let data = pool.volume_data(&node.id);
    orlop_sys::tool::run("e2fsck", ["-fn".as_ref(), data.as_os_str()]).unwrap();
}

fn is_growing(pool: &TestPool, node: &OnNode) -> bool {
    let record = std::fs::read_to_string(pool.volume_record(&node.id)).unwrap();
    record.contains("\"growing\": true")
}

fn needs_repair(pool: &TestPool, node: &OnNode) -> bool {
    let data = pool.volume_data(&node.id);
    orlop_sys::tool::run("e2fsck", ["-fn".as_ref(), data.as_os_str()]).is_err()
}

fn remove(hog: &Path) {
    std::fs::File::options().write(true).open(hog).unwrap().set_len(0).unwrap();
    std::fs::remove_file(hog).unwrap();
    file::sync_filesystem(hog.parent().unwrap()).unwrap();
}

/// The pool becomes full after it was found to have room.
#[tokio::test(flavor = "multi_thread")]
async fn growth_that_met_a_full_pool_is_completed_by_the_next_stage() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let covered = start(&pool).await;
    let client = covered.daemon.client();
    let hog = pool.path.join("hog");
    let mut damaged = 0;
    for left_kib in [0, 16, 32, 64, 128] {
        let node = expanded(&covered, &format!("volume{left_kib}")).await;
        covered.cover_by_script(&pool, |real| {
            format!(
                "bytes=$(($(stat -f -c %a {0}) * $(stat -f -c %S {0}) - {left_kib} * 1024))\n\
                 until fallocate -l $bytes {1}; do bytes=$((bytes - 65536)); done\n\
                 exec {real} \"$@\"",
                pool.path.display(),
                hog.display()
            )
        });
        let staged = node.stage().await;
        covered.uncover();
        if staged.is_ok() {
            remove(&hog);
            check_whole(&covered, &pool, &node, &format!("{left_kib} KiB were enough")).await;
            continue;
        }
        let refused = expect_code(staged, Code::ResourceExhausted);
        assert!(refused.message().contains("enlarge"), "{refused}");
        assert!(is_growing(&pool, &node), "{left_kib}");
        damaged += u32::from(needs_repair(&pool, &node));
        // As long as the pool is full: neither repaired half-way, nor copied, nor damaged any further.
        expect_code(node.stage().await, Code::ResourceExhausted);
        expect_code(client.snapshot("copy", &node.id).await, Code::FailedPrecondition);
        assert!(is_growing(&pool, &node), "{left_kib}");

        remove(&hog);
        check_whole(&covered, &pool, &node, &format!("{left_kib} KiB were left")).await;
        client.delete(&node.id).await.unwrap();
    }
    assert!(damaged > 0, "nothing was to be repaired");
}

/// Killed together, as when a container is stopped by force.
#[tokio::test(flavor = "multi_thread")]
async fn killed_growth_is_completed_by_the_next_stage() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let mut covered = start(&pool).await;
    let client = covered.daemon.client();
    let mut interrupted = 0;
    for seconds in ["0.005", "0.01", "0.02", "0.03", "0.05", "0.08"] {
        let node = expanded(&covered, &format!("volume{seconds}")).await;
        covered.cover_by_script(&pool, |real| {
            format!("timeout --signal=KILL {seconds} {real} \"$@\"\nkill -KILL $PPID")
        });
        node.stage().await.unwrap_err();
        covered.daemon.wait_for_end();
        interrupted += u32::from(is_growing(&pool, &node));
        covered.daemon.restart().await;
        check_whole(&covered, &pool, &node, seconds).await;
        client.delete(&node.id).await.unwrap();
    }
    assert_eq!(interrupted, 6, "the record was not written before the tool ran");
}

/// Before anything is written, so that there is nothing to repair.
#[tokio::test(flavor = "multi_thread")]
async fn growth_without_room_is_refused_before_it_begins() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let covered = start(&pool).await;
    let node = expanded(&covered, "volume").await;
    let hog = pool.path.join("hog");
    super::full::fill(&hog);
    let refused = expect_code(node.stage().await, Code::ResourceExhausted);
    assert!(refused.message().contains("enlarge that filesystem"), "{refused}");
    assert!(!is_growing(&pool, &node));
    assert!(!needs_repair(&pool, &node));
    remove(&hog);
    check_whole(&covered, &pool, &node, "refused").await;
}

/// Nothing says that the growth has done it, so files could be lost by a repair that asks nothing.
#[tokio::test(flavor = "multi_thread")]
async fn damage_from_before_a_growth_is_not_repaired_by_force() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let covered = start(&pool).await;
    let node = expanded(&covered, "volume").await;
    let data = pool.volume_data(&node.id);
    let words = ["-w", "-R", "clri directory3"].map(std::ffi::OsStr::new);
    orlop_sys::tool::run("debugfs", words.into_iter().chain([data.as_os_str()])).unwrap();
    for _ in 0..2 {
        let refused = expect_code(node.stage().await, Code::Internal);
        assert!(refused.message().contains("e2fsck"), "{refused}");
        assert!(!is_growing(&pool, &node));
        assert!(needs_repair(&pool, &node), "it was repaired");
    }
}
