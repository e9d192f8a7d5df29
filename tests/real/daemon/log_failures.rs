//! Calls do not depend on a log that can be written.

use std::fs::OpenOptions;
use std::path::Path;

use orlop_tests::*;
use rustix::fs::{CWD, Mode, mkfifoat};

async fn calls_are_answered(client: &Client) {
    for name in ["first", "second"] {
        let volume = client.create(name).size(64 * MIB).fs("ext4").done().await;
        client.delete(&volume.volume_id).await.unwrap();
    }
    expect_code(client.delete("").await, Code::InvalidArgument);
}

/// The daemon's stderr is at `path`.
fn logging_to(launch: Launch, path: &Path) -> Launch {
    let redirect = format!("exec \"$@\" 2>{}", path.display());
    launch.run_by(&["/bin/sh", "-c", &redirect, "sh"])
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_answered_when_the_logs_reader_is_gone() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let pipe = pool.scratch().join("pipe");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    // Also for writing, or it would wait for the daemon.
    let reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let quiet = Launch::on(&pool).env("ORLOP_LOG", "info");
    let mut daemon = logging_to(quiet, &pipe).start().await;
    let client = daemon.client();
    calls_are_answered(&client).await;
    drop(reader);
    calls_are_answered(&client).await;
    daemon.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_answered_when_the_logs_disk_is_full() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = logging_to(Launch::on(&pool), Path::new("/dev/full")).start().await;
    calls_are_answered(&daemon.client()).await;
    daemon.terminate();
}
