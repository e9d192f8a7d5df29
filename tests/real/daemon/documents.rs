//! What a plugin has to say in its documents, and says in the README.

use std::collections::BTreeSet;
use std::path::Path;

use orlop_tests::*;

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    std::fs::read_to_string(path).unwrap()
}

/// The README with single blanks, so that it does not matter where lines break.
fn text() -> String {
    readme().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn says(sentences: &[&str]) {
    let text = text();
    for sentence in sentences {
        assert!(text.contains(sentence), "the README does not say: {sentence}");
    }
}

/// GEN-34, GEN-35: none, so no two of them have the same key.
#[test]
fn secrets_are_documented() {
    says(&["**Secrets: none are needed.** No RPC defines a key."]);
}

/// TP-21
#[test]
fn topology_is_documented() {
    says(&[
        "Every node has the segment `<driver name>/node = <node id>`",
        "those of `ORLOP_TOPOLOGY` under the same prefix",
        "Nothing else is needed.",
    ]);
}

/// ID-30
#[test]
fn probe_is_documented() {
    says(&["Every 5 to 30 seconds is fine, and there is no limit.", "give it a timeout"]);
}

/// OP-13: they do not go elsewhere, and whose business the rest is.
#[test]
fn logs_are_documented() {
    says(&["**Logs** go to stderr only.", "Rotation belongs to whoever collects stderr."]);
}

/// OP-19, OP-22
#[test]
fn rights_and_resources_are_documented() {
    says(&["`CAP_SYS_ADMIN`", "`CAP_SYS_RESOURCE`", "The daemon needs some 15 MiB of memory"]);
}

fn variables(prefix: &str) -> BTreeSet<String> {
    let text = readme();
    let words = text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| word.starts_with(prefix)).map(str::to_owned).collect()
}

/// OP-10
#[test]
fn no_variable_of_its_own_begins_with_csi() {
    assert_eq!(variables("CSI_"), BTreeSet::from(["CSI_ENDPOINT".to_owned()]));
    assert!(variables("ORLOP_").len() > 10, "the README lists its variables");
}

/// OP-05: what it needs on the host is where its settings say, and nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn every_path_can_be_chosen() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let scratch = pool.scratch().path().to_owned();
    let fds = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let open = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    // Sockets and pipes have no path.
    let is_file = |path: &Path| path.is_absolute() && !path.starts_with("/dev");
    let elsewhere: Vec<_> =
        open.filter(|path| is_file(path) && !path.starts_with(&scratch)).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    client.delete(&volume.volume_id).await.unwrap();
}
