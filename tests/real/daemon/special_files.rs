//! Small files that are none: a pipe that holds back its reader, and contents without end.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use orlop_tests::*;
use rustix::fs::{CWD, FileType, Mode as FileMode, OFlags, mknodat, open};

use crate::daemon::misconfigured::{refused, refused_by_both};

/// A pipe. Much later a writer comes and goes, so that a reader that waits for one is seen to have
/// waited, instead of holding the test.
fn pipe(path: &Path) {
    let mode = FileMode::RUSR | FileMode::WUSR;
    mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
    let path = path.to_owned();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(30));
        while path.exists() {
            let _ = open(&path, OFlags::WRONLY | OFlags::NONBLOCK, FileMode::empty());
            std::thread::sleep(Duration::from_millis(200));
        }
    });
}

#[test]
fn pool_header_that_is_no_file_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mark = pool.path.join("orlop.pool");
    pipe(&mark);
    let launch = Launch::on(&pool);
    let shown = launch.run(&["pool", "show", pool.path.to_str().unwrap()]);
    assert!(shown.stderr.contains("not a regular file"), "{shown:?}");
    refused(&launch, "not a regular file");
    fs::remove_file(&mark).unwrap();
}

#[test]
fn endless_pool_header_is_not_read() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    File::create(pool.path.join("orlop.pool")).unwrap().set_len(64 * MIB).unwrap();
    refused(&Launch::on(&pool), "longer than");
}

#[test]
fn endless_configuration_is_not_read() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let file = pool.scratch().join("orlop.toml");
    fs::write(&file, "\n".repeat(2 << 20)).unwrap();
    for path in [&*file, Path::new("/dev/zero")] {
        refused_by_both(&Launch::on(&pool).env("ORLOP_CONFIG", path), "longer than");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_no_files_damage_one_volume() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Launch::on(&pool).start().await;
    let client = daemon.client();
    let mut ids = Vec::new();
    for name in ["sound", "piped", "long"] {
        ids.push(client.create(name).size(16 * MIB).block().done().await.volume_id);
    }
    let used = client.create("used").size(16 * MIB).block().done().await;
    daemon.terminate();
    let (piped, long) = (pool.volume_record(&ids[1]), pool.volume_record(&ids[2]));
    fs::remove_file(&piped).unwrap();
    pipe(&piped);
    File::options().write(true).open(&long).unwrap().set_len(64 * MIB).unwrap();
    let notes = pool.scratch().join("run/csi.orlop.io/volumes");
    pipe(&notes.join(format!("{}.json", used.volume_id)));

    daemon.restart().await;
    let client = daemon.client();
    client.get_volume(&ids[0]).await.unwrap();
    for (id, reason) in [(&ids[1], "not a regular file"), (&ids[2], "longer than")] {
        let condition =
            client.get_volume(id).await.unwrap().status.unwrap().volume_condition.unwrap();
        assert!(condition.abnormal && condition.message.contains(reason), "{condition:?}");
    }
    let node = client.on_node(&used, block());
    node.up().await;
    node.down().await;
    let aside = notes.join(format!("{}.json.damaged", used.volume_id));
    assert!(aside.exists(), "it is set aside, as other damaged records are");
    for path in [piped, aside] {
        fs::remove_file(path).unwrap();
    }
    daemon.terminate();
}
