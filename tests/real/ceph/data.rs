//! What is written is there: through growth, copies, a daemon that is killed, and another node.

use orlop_tests::*;

use crate::ceph::{VOLUME, delete, down_from, up_on};

const GROWN: u64 = 512 * MIB;
const DATA: u64 = 24 * MIB;

async fn volumes_hold_data(capability: v1::VolumeCapability, name: &str) {
    let ceph = TestCeph::shared();
    let controller = ceph.controller(&format!("{name}-c")).await;
    let home = format!("{name}-n");
    let node = ceph.node(&home).await;
    let client = controller.client();
    let create = client.create(name).size(VOLUME).capability(capability.clone());
    let volume = create.done().await;
    let used = up_on(&client, &node, &home, &volume, capability.clone()).await;
    Pattern::new(1).write(&used.data_path(), DATA);

    client.expand(&used.id, GROWN).await.unwrap();
    used.expand(GROWN).await.unwrap();
    assert_size(&used, GROWN);
    let snapshot = client.snapshot(name, &used.id).await.unwrap().snapshot_id;
    Pattern::new(2).write(&used.data_path(), DATA);
    down_from(&client, &home, &used).await;

    let restored = client.create(&format!("{name} restored")).from_snapshot(&snapshot);
    let restored = restored.capability(capability.clone()).done().await;
    let cloned = client.create(&format!("{name} cloned")).from_volume(&used.id);
    let cloned = cloned.capability(capability.clone()).done().await;
    delete(&client, &used.id).await;
    for (copy, seed) in [(&restored, 1), (&cloned, 2)] {
        let copy = up_on(&client, &node, &home, copy, capability.clone()).await;
        Pattern::new(seed).check(&copy.data_path(), DATA);
        down_from(&client, &home, &copy).await;
    }
    for copy in [&restored, &cloned] {
        delete(&client, &copy.volume_id).await;
    }
    client.delete_snapshot(&snapshot).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_volume_holds_data() {
    needs_root!();
    volumes_hold_data(mount("xfs"), "mounted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_volume_holds_data() {
    needs_root!();
    volumes_hold_data(block(), "raw").await;
}

/// ext4 grows while it is mounted, where that is allowed, or else when it is staged next.
#[tokio::test(flavor = "multi_thread")]
async fn ext4_grows_at_the_next_stage_at_the_latest() {
    needs_root!();
    let ceph = TestCeph::shared();
    let daemon = ceph.launch("grows", "all").start().await;
    let client = daemon.client();
    let volume = client.create("grows").size(VOLUME).fs("ext4").done().await;
    let used = up_on(&client, &daemon, "grows", &volume, mount("ext4")).await;
    Pattern::new(1).write(&used.data_path(), DATA);
    client.expand(&used.id, GROWN).await.unwrap();
    let grown = used.expand(GROWN).await;
    if may_grow_ext4_mounted() {
        assert_eq!(grown.unwrap(), int(GROWN));
    } else {
        let status = expect_code(grown, Code::FailedPrecondition);
        assert!(status.message().to_ascii_lowercase().contains("ext4"), "{status}");
        assert_size(&used, VOLUME);
        used.down().await;
        used.up().await;
    }
    assert_size(&used, GROWN);
    Pattern::new(1).check(&used.data_path(), DATA);
    down_from(&client, "grows", &used).await;
    delete(&client, &used.id).await;
}

/// In arguments, logs, records or files that others may read. In a namespace, as many clusters are
/// shared.
#[tokio::test(flavor = "multi_thread")]
async fn ceph_key_is_only_in_its_keyring() {
    needs_root!();
    let ceph = TestCeph::shared();
    let keyring = std::fs::read_to_string(ceph.keyring()).unwrap();
    let key = keyring.lines().find_map(|line| line.trim().strip_prefix("key = "));
    let key = key.expect("a key in the keyring").to_owned();
    ceph.rbd(&["namespace", "create", "rbd/team"]);
    let launch = ceph.launch("secret", "all").env("ORLOP_RBD_NAMESPACE", "team");
    let daemon = launch.env("ORLOP_LOG", "trace").start().await;
    let client = daemon.client();
    let volume = client.create("secret").size(VOLUME).block().done().await;
    let used = up_on(&client, &daemon, "secret", &volume, block()).await;

    let mut searched = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&words).contains(&key), "{entry:?}");
        searched += usize::from(String::from_utf8_lossy(&words).contains(&used.id));
    }
    assert!(searched > 0, "the export's arguments were not among those searched");
    assert!(!daemon.log().contains(&key));
    let metadata = ceph.rbd(&["image-meta", "list", &format!("rbd/team/{}", used.id)]);
    assert!(metadata.contains("orlop.writer") && !metadata.contains(&key), "{metadata}");
    for file in files_below(&daemon.launch().scratch().join("run")) {
        assert!(
            !String::from_utf8_lossy(&std::fs::read(&file).unwrap()).contains(&key),
            "{file:?}"
        );
    }
    down_from(&client, "secret", &used).await;
    delete(&client, &used.id).await;
}

fn files_below(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files_below(&entry.path())),
            // The image itself is as large as the volume.
            kind if kind.is_file() && entry.file_name() != "image" => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
