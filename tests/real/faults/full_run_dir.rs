//! The run directory is on a filesystem in memory that has no page or no inode left: what needs a new
//! record is refused as a whole, and what is in use stays as it is.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use orlop_sys::mounts::{self, FsMount};
use orlop_tests::*;

const VOLUME: u64 = 32 * MIB;
const DATA: u64 = MIB;

/// Other records fit beside those of the daemon, but not many.
fn small_run_dir(pool: &TestPool) -> PathBuf {
    let path = pool.scratch().ensure_dir("run");
    let options = ["size=256k".to_owned(), "nr_inodes=60".to_owned()];
    let tmpfs = FsMount {
        device: Path::new("tmpfs"),
        fs_type: "tmpfs",
        options: &options,
        read_only: false,
    };
    mounts::mount_filesystem(&tmpfs, &path).unwrap();
    path
}

fn take_all_pages(hogs: &Path) {
    let mut hog = File::options().create(true).append(true).open(hogs.join("hog")).unwrap();
    while hog.write_all(&[1; 512]).is_ok() {}
}

fn take_all_inodes(hogs: &Path) {
    let there = std::fs::read_dir(hogs).unwrap().count();
    for number in there.. {
        if File::create_new(hogs.join(format!("{number}"))).is_err() {
            return;
        }
    }
}

/// Names in the daemon's part of the run directory, also hidden ones.
fn names_in(run_dir: &Path, directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(run_dir.join("csi.orlop.io").join(directory)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_directory_without_space() {
    needs_root!();
    without_room(take_all_pages).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_directory_without_inodes() {
    needs_root!();
    without_room(take_all_inodes).await;
}

async fn without_room(take_all: fn(&Path)) {
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let run_dir = small_run_dir(&pool);
    let launch = Launch::on(&pool).with_fixtures([run_dir.clone()]);
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let create = |name| client.create(name).size(VOLUME).fs("ext4");
    let used = client.on_node(&create("used").done().await, mount("ext4"));
    let fresh = client.on_node(&create("fresh").done().await, mount("ext4"));
    let shared = block().mode(Mode::SingleNodeMultiWriter);
    let raw = client.create("raw").size(VOLUME).capability(shared.clone()).done().await;
    let raw = client.on_node(&raw, shared);
    let idle = client.on_node(&create("idle").done().await, mount("ext4"));
    idle.stage().await.unwrap();
    for (seed, node) in [(1, &used), (2, &raw)] {
        node.up().await;
        Pattern::new(seed).write(&node.data_path(), DATA);
    }

    let hogs = run_dir.join("hogs");
    std::fs::create_dir(&hogs).unwrap();
    take_all(&hogs);
    let held = daemon.leaks();
    let exhausted = |answer: Answer<()>| {
        let status = expect_code(answer, Code::ResourceExhausted);
        assert!(status.message().contains("run directory"), "{status}");
    };
    let second = client.new_target("second");
    exhausted(fresh.stage().await);
    exhausted(raw.publish_at(&second, false).await);
    exhausted(client.snapshot("cut", &used.id).await.map(drop));
    assert_eq!(daemon.leaks(), held, "attached, mounted or let go half-way");
    assert!(!second.exists());
    assert_eq!(pool.entries("staging"), [""; 0]);
    assert_eq!(pool.entries("snapshots"), [""; 0]);
    assert_eq!(names_in(&run_dir, "frozen"), [""; 0]);
    assert_eq!(names_in(&run_dir, "volumes").len(), 3, "{:?}", names_in(&run_dir, "volumes"));
    Pattern::new(3).write(&used.target.join("after"), DATA);

    // A volume that is not mounted needs no note, and one that is let go needs no new record.
    client.snapshot("cut of fresh", &fresh.id).await.unwrap();
    idle.unstage().await.unwrap();
    client.delete(&idle.id).await.unwrap();
    take_all(&hogs);
    exhausted(raw.unpublish().await);
    assert!(!raw.target.exists(), "only the record is left");
    daemon.restart().await;
    Pattern::new(1).check(&used.data_path(), DATA);

    orlop_sys::file::remove_tree(&hogs).unwrap();
    raw.unpublish().await.unwrap();
    fresh.up().await;
    raw.up().await;
    raw.publish_at(&second, false).await.unwrap();
    raw.unpublish_at(&second).await.unwrap();
    client.snapshot("cut", &used.id).await.unwrap();
    for (seed, node) in [(1, &used), (2, &raw)] {
        Pattern::new(seed).check(&node.data_path(), DATA);
    }
    for node in [&used, &fresh, &raw] {
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    assert_eq!(names_in(&run_dir, "volumes"), [""; 0]);
}
