//! Things go wrong around the daemon. Each time: the code that callers get, the condition that is
//! reported, and that everything works again when the cause is gone.
//!
//! Elsewhere: missing and damaged data and records (`health.rs`), a pool moved away and a tool that
//! Probe misses (`daemon/health.rs`), an export that was killed (`ceph/exports.rs`).

mod clock;
mod descriptors;
mod devices;
mod disk;
mod foreign_mounts;
mod full;
mod full_run_dir;
mod hidden;
mod interrupted_growth;
mod lost_data;
mod lost_image;
mod lost_writes;
mod manual_devices;
mod moved_data;
mod tools;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use orlop_sys::{file, tool};
use orlop_tests::{Client, Code};

/// Far more than anything here takes; reached only by what never happens.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn is_abnormal(client: &Client, volume: &str) -> bool {
    client.condition(volume).await.unwrap().abnormal
}

/// The reason that Probe gives for being unhealthy.
async fn complaint(client: &Client) -> String {
    let status = client.failed_probe().await;
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    status.message().to_owned()
}

/// Not by sync(1): it would wait for every filesystem of the machine, also for one on a Ceph pool that
/// another test has filled up.
fn flush(path: &Path) {
    File::open(path).and_then(|file| file.sync_all()).unwrap();
    file::sync_filesystem(path).unwrap();
}

fn run(program: &str, words: &[&str]) {
    tool::run(program, words).unwrap();
}

/// Runs the commands that a message has between quotes for saving what is only on a device, word for word. If one of them
/// fails, the message is asked for again: a mount namespace with a copy of the mount, as mkfs has for a moment, may have
/// written to the device after the unmount.
async fn follow(advice: impl AsyncFn() -> String) {
    for attempts_left in (0..10).rev() {
        let message = advice().await;
        let commands = message.split('\'').find(|part| part.contains("dd if="));
        let commands = commands.unwrap_or_else(|| panic!("no commands: {message}"));
        match tool::run("sh", ["-c", commands]) {
            Ok(_) => return,
            Err(error) => assert!(attempts_left > 0, "{commands}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
