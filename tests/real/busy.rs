//! Snapshots and clones of a mounted volume while a workload writes to it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use orlop_sys::tool;
use orlop_tests::*;

const VOLUME: u64 = 320 * MIB;
const RECORD: usize = 4096;

on_every_pool!(
    copy_of_a_busy_volume_has_all_acknowledged_writes,
    copy_of_a_busy_volume_is_clean_before_mount,
    clones_of_one_source_run_concurrently,
);

/// Appends numbered records, each on stable storage before the next is begun.
struct Writer {
    path: PathBuf,
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Writer {
    fn start(path: PathBuf) -> Self {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let mut file = File::create(&path).unwrap();
        let (count, end) = (Arc::clone(&acknowledged), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Acquire) {
                let number = count.load(Ordering::Acquire);
                file.write_all(&record(number))?;
                file.sync_data()?;
                count.store(number + 1, Ordering::Release);
            }
            Ok(())
        });
        Self { path, acknowledged, stop, thread: Some(thread) }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// Returns once that many more records are on stable storage.
    async fn has_written(&self, more: u64) {
        let wanted = self.acknowledged() + more;
        while self.acknowledged() < wanted {
            let thread = self.thread.as_ref().expect("a running writer");
            assert!(!thread.is_finished(), "the writer met an error");
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    fn finish(mut self) {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("a running writer");
        thread.join().unwrap().expect("the writer met an error");
        let count = check_records(&self.path);
        assert_eq!(count, self.acknowledged(), "the writer's own file");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map(JoinHandle::join);
    }
}

fn record(number: u64) -> Vec<u8> {
    Pattern::new(number).bytes(0, RECORD)
}

/// Whole records in their order and nothing else; returns how many.
fn check_records(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len() % RECORD, 0, "a torn record at the end");
    let mut count = 0;
    for found in bytes.chunks(RECORD) {
        assert!(found == record(count), "record {count} is wrong");
        count += 1;
    }
    count
}

async fn copy_of_a_busy_volume_has_all_acknowledged_writes(pool: PoolFs) {
    let pool = TestPool::new(pool, 8 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["xfs", "ext4", "btrfs"] {
        let create = |what: &str| client.create(&format!("{what} {fs}")).fs(fs).size(VOLUME);
        let source = client.on_node(&create("source").done().await, mount(fs));
        source.up().await;
        let writer = Writer::start(source.data_path());
        writer.has_written(20).await;

        let before_snapshot = writer.acknowledged();
        let snapshot = client.snapshot(fs, &source.id).await.unwrap().snapshot_id;
        let after_snapshot = writer.acknowledged();
        let clone = create("clone").from_volume(&source.id).done().await;
        writer.has_written(20).await;
        let restored = create("restored").from_snapshot(&snapshot).done().await;

        let restored = client.on_node(&restored, mount(fs));
        let clone = client.on_node(&clone, mount(fs));
        restored.up().await;
        clone.up().await;
        let in_snapshot = check_records(&restored.data_path());
        let in_clone = check_records(&clone.data_path());
        // One more than is acknowledged may be on its way.
        assert!(
            (before_snapshot..=after_snapshot + 1).contains(&in_snapshot),
            "{fs}: {in_snapshot} records, between {before_snapshot} and {after_snapshot}"
        );
        assert!(in_clone >= after_snapshot, "{fs}: {in_clone} in the clone");

        writer.finish();
        for node in [&source, &restored, &clone] {
            node.down().await;
            client.delete(&node.id).await.unwrap();
        }
        client.delete_snapshot(&snapshot).await.unwrap();
    }
}

/// A filesystem that was frozen for the snapshot needs no repair. ext4 and btrfs can be asked
/// before they are mounted; XFS keeps a log to replay on purpose, and is asked after its mount.
async fn copy_of_a_busy_volume_is_clean_before_mount(pool: PoolFs) {
    let pool = TestPool::new(pool, 8 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for fs in ["ext4", "btrfs", "xfs"] {
        let create = |what: &str| client.create(&format!("{what} {fs}")).fs(fs).size(VOLUME);
        let source = client.on_node(&create("source").done().await, mount(fs));
        source.up().await;
        let writer = Writer::start(source.data_path());
        let directories = source.target.join("directories");
        std::fs::create_dir(&directories).unwrap();
        for number in 0..200 {
            std::fs::create_dir(directories.join(number.to_string())).unwrap();
        }
        writer.has_written(5).await;
        let snapshot = client.snapshot(fs, &source.id).await.unwrap().snapshot_id;
        let restored = create("restored").from_snapshot(&snapshot).done().await;
        let restored = client.on_node(&restored, mount(fs));
        let image = pool.volume_data(&restored.id);
        if fs == "xfs" {
            restored.stage().await.unwrap();
            restored.unstage().await.unwrap();
        }
        check_filesystem(fs, &image);
        writer.finish();
        source.down().await;
    }
}

/// Copying does not change the source, so copies do not block each other.
async fn clones_of_one_source_run_concurrently(pool: PoolFs) {
    let pool = TestPool::new(pool, 8 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let source = client.create("source").size(VOLUME).block().done().await;
    let source = client.on_node(&source, block());
    source.up().await;
    Pattern::new(1).write(&source.target, 64 * MIB);
    source.down().await;
    let clones: Vec<_> = (0..8)
        .map(|number| {
            let (client, source) = (client.clone(), source.id.clone());
            tokio::spawn(async move {
                let clone = client.create(&format!("clone {number}")).block().from_volume(&source);
                clone.send().await
            })
        })
        .collect();
    for clone in clones {
        let clone = clone.await.unwrap().expect("a clone beside seven others");
        Pattern::new(1).check(&pool.volume_data(&clone.volume_id), 64 * MIB);
    }
}

fn check_filesystem(fs: &str, image: &Path) {
    let (check, words) = match fs {
        "ext4" => ("e2fsck", ["-f", "-n"].as_slice()),
        "btrfs" => ("btrfs", ["check", "--readonly"].as_slice()),
        "xfs" => ("xfs_repair", ["-n"].as_slice()),
        other => panic!("{other} cannot be checked"),
    };
    output_of(check, words, image);
    // btrfs is synced but not frozen, so a copy may have a log of what was fsynced since; the check
    // above proves that it is whole with it.
    if fs == "ext4" {
        let superblock = output_of("dumpe2fs", &["-h"], image);
        assert!(!superblock.contains("needs_recovery"), "the journal has to be replayed");
    }
}

fn output_of(program: &str, words: &[&str], image: &Path) -> String {
    let image = image.to_str().unwrap();
    let output = tool::run(program, words.iter().chain([&image])).unwrap();
    String::from_utf8(output.stdout).unwrap()
}
