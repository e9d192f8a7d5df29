//! Encrypted volumes, on real mappings of dm-crypt. Runs in the guest of tests/guest; where the kernel has no
//! device-mapper, only that they are refused is tested.

mod blocks;
mod leftovers;
mod lifecycle;
mod rotation;
mod secrecy;

use std::path::Path;

use orlop_tests::*;

const KEY: &str = "correct horse battery staple";
/// Before the data.
const HEADER: u64 = 16 * MIB;
/// As quick as cryptsetup allows: the processor of the guest is emulated.
const KDF: &str = "pbkdf2:1000";

fn launch(pool: &TestPool) -> Launch {
    Launch::on(pool).env("ORLOP_ENCRYPTION_KDF", KDF)
}

fn encrypted(create: Create) -> Create {
    create.parameter("encryption", "luks2")
}

async fn new_volume(client: &Client, name: &str, size: u64, how: v1::VolumeCapability) -> OnNode {
    let volume = encrypted(client.create(name).size(size).capability(how.clone())).done().await;
    client.on_node(&volume, how).with_key(KEY)
}

/// Names of open mappings of the volume.
fn mappings(id: &str) -> Vec<String> {
    let prefix = format!("orlop-crypt-{id}");
    let found = orlop_sys::device_mapper::named(&prefix).unwrap();
    found.into_iter().map(|mapping| mapping.name).collect()
}

/// Is the text anywhere in the file?
fn holds(path: &Path, text: &str) -> bool {
    let words = ["--quiet", "--null-data", "--text", "--fixed-strings", text];
    let words = words.iter().map(std::ffi::OsStr::new).chain([path.as_os_str()]);
    let ended = orlop_sys::tool::run_accepting("grep", words, &[0, 1]).unwrap();
    ended.status.success()
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_without_device_mapper_refuses_at_creation() {
    needs_root!();
    if orlop_sys::crypt::missing().is_none() {
        return;
    }
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = launch(&pool).start().await;
    let refused = encrypted(daemon.client().create("v").size(64 * MIB)).send().await;
    let status = expect_code(refused, Code::InvalidArgument);
    assert!(status.message().contains("device-mapper"), "{}", status.message());
}
