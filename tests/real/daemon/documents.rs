//! What a plugin has to say in its documents, and where the manual says it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use orlop_tests::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// With single blanks, so that it does not matter where lines break.
#[track_caller]
fn says(document: &str, sentences: &[&str]) {
    let text = read(&root().join("docs").join(document));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in sentences {
        assert!(text.contains(sentence), "docs/{document} does not say: {sentence}");
    }
}

/// GEN-34, GEN-35: which keys, of which calls, and that each means one thing.
#[test]
fn secrets_are_documented() {
    says(
        "storage-classes.md",
        &[
            "only: `encryptionPassphrase` and `previousEncryptionPassphrase` of NodeStageVolume, NodePublishVolume and \
           EncryptionKeyRotate, with the same meaning in each.",
        ],
    );
}

/// TP-21
#[test]
fn topology_is_documented() {
    says(
        "volumes.md",
        &[
            "Every node has the segment `<driver name>/node = <node id>`",
            "those of `ORLOP_TOPOLOGY` under the same prefix",
            "Nothing else is needed.",
        ],
    );
}

/// ID-30
#[test]
fn probe_is_documented() {
    says(
        "operations.md",
        &["every 5 to 30 seconds is fine, and there is no limit.", "give it a timeout"],
    );
}

/// OP-13: they do not go elsewhere, and whose business the rest is.
#[test]
fn logs_are_documented() {
    says(
        "operations.md",
        &["Logs go to stderr only; the program that collects stderr has to rotate them."],
    );
}

/// OP-19, OP-22
#[test]
fn rights_and_resources_are_documented() {
    says(
        "deploy/requirements.md",
        &["`CAP_SYS_ADMIN`", "`CAP_SYS_RESOURCE`", "The daemon needs some 15 MiB of memory"],
    );
}

/// The README and all pages of the manual. What lists or explains the work on Orlop is left out.
fn manual() -> Vec<PathBuf> {
    let pages = |directory: &str| {
        let entries = std::fs::read_dir(root().join(directory)).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
    };
    let readme = root().join("README.md");
    std::iter::once(readme).chain(pages("docs")).chain(pages("docs/deploy")).collect()
}

fn variables(prefix: &str) -> BTreeSet<String> {
    let text: String = manual().iter().map(|page| read(page)).collect();
    let words = text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| word.starts_with(prefix)).map(str::to_owned).collect()
}

/// OP-10
#[test]
fn only_csi_endpoint_begins_with_csi() {
    assert_eq!(variables("CSI_"), BTreeSet::from(["CSI_ENDPOINT".to_owned()]));
    assert!(variables("ORLOP_").len() > 10, "the manual lists its variables");
}

/// OP-05: what it needs on the host is where its settings say, and nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn every_path_is_configurable() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let scratch = pool.scratch().path().to_owned();
    // Sockets and pipes have no path.
    let is_file = |path: &Path| path.is_absolute() && !path.starts_with("/dev");
    let elsewhere = || -> Vec<_> {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        let open = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        open.filter(|path| is_file(path) && !path.starts_with(&scratch)).collect()
    };
    // What it only reads now and then, such as the list of mounts, is closed at the next look.
    assert!((0..100).any(|_| elsewhere().is_empty()), "{:?}", elsewhere());
    client.delete(&volume.volume_id).await.unwrap();
}
