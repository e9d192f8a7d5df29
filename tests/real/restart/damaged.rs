//! Files in the run directory that cannot be read: the kernel knows what is in use all the same.

use std::fs;
use std::path::PathBuf;

use orlop_tests::*;

const VOLUME: u64 = 64 * MIB;

fn in_run_directory(daemon: &Daemon, path: &str) -> PathBuf {
    daemon.launch().scratch().join("run/csi.orlop.io").join(path)
}

fn record(daemon: &Daemon, id: &str) -> PathBuf {
    in_run_directory(daemon, &format!("volumes/{id}.json"))
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_with_a_damaged_record_can_be_unstaged() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 2 * GIB);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let raw = client.create("raw").size(VOLUME).block().done().await;
    let raw = client.on_node(&raw, block());
    let mounted = client.create("mounted").size(VOLUME).fs("ext4").done().await;
    let mounted = client.on_node(&mounted, mount("ext4"));
    for restarts in [false, true] {
        for node in [&raw, &mounted] {
            node.up().await;
            let record = record(&daemon, &node.id);
            let text = fs::read(&record).unwrap();
            fs::write(&record, &text[..text.len() / 2]).unwrap();
        }
        if restarts {
            daemon.kill9();
            daemon.restart().await;
        }
        for node in [&raw, &mounted] {
            node.unpublish().await.unwrap();
            node.unstage().await.unwrap();
            assert!(daemon.has_logged(&format!("{}.json.damaged", node.id)), "not in the log");
        }
    }
    for node in [&raw, &mounted] {
        client.delete(&node.id).await.unwrap();
        for aside in ["damaged", "damaged.1"] {
            fs::remove_file(record(&daemon, &node.id).with_extension(format!("json.{aside}")))
                .unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_directory_among_freeze_records_is_ignored() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    daemon.terminate();
    let foreign = in_run_directory(&daemon, "frozen/foreign");
    fs::create_dir(&foreign).unwrap();
    daemon.restart().await;
    assert!(daemon.has_logged("frozen/foreign"), "not in the log");
    assert!(foreign.is_dir(), "it was not ours to remove");
    daemon.client().create("v").size(MIB).block().done().await;
    fs::remove_dir(&foreign).unwrap();
}
