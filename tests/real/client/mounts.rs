//! Volumes that are mounted, grown and limited by hand.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use orlop_sys::mounts::mount_at;
use orlop_tests::*;

use super::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_mounted_written_grown_and_unmounted() {
    needs_root!();
    let at = Terminal::new().await;
    let id = at.id(&["volume", "create", "data", "--size", "300MiB", "--fs", "xfs"]);
    let target = at.path("mnt");
    std::fs::create_dir(&target).unwrap();
    std::fs::set_permissions(&target, PermissionsExt::from_mode(0o710)).unwrap();
    std::os::unix::fs::chown(&target, Some(1000), Some(1001)).unwrap();
    let said = at.ok(&["volume", "mount", "data", &target]);
    assert!(said.contains(&format!("orlop volume unmount {target}")), "{said}");
    // Again: nothing more happens.
    at.ok(&["volume", "mount", "data", &target]);
    let file = Path::new(&target).join("file");
    Pattern::new(3).write(&file, 5 * MIB);
    let shown = at.json(&["volume", "show", "data"]);
    assert_eq!(shown["mounted_at"][0], *target);
    assert_eq!(shown["published_nodes"][0], "test-node");

    let grown = at.json(&["volume", "grow", "data", "+300MiB"]);
    assert_eq!(grown["size_bytes"], 600 * MIB);
    assert_eq!(grown["grown_at"][0], *target);
    let space = orlop_sys::file::space(Path::new(&target)).unwrap();
    assert!(space.total > 450 * MIB, "{space:?}");
    let why = at.fails(2, &["volume", "grow", "data", "100MiB"]);
    assert!(why.contains("only grow"), "{why}");
    Pattern::new(3).check(&file, 5 * MIB);

    let why = at.fails(3, &["volume", "delete", "data", "--yes"]);
    assert!(why.contains(&format!("`orlop volume unmount {target}` first")), "{why}");
    at.ok(&["volume", "unmount", &target]);
    assert!(mount_at(Path::new(&target)).unwrap().is_none());
    let left = std::fs::metadata(&target).unwrap();
    assert!(left.is_dir() && left.permissions().mode() & 0o7777 == 0o710, "as it was before");
    assert_eq!((left.uid(), left.gid()), (1000, 1001));
    let shown = at.json(&["volume", "show", &id]);
    assert_eq!(shown["published_nodes"], serde_json::json!([]));
    assert_eq!(shown["mounted_at"], serde_json::json!([]));
    let why = at.fails(2, &["volume", "unmount", &target]);
    assert!(why.contains("nothing is mounted by hand"), "{why}");
    at.ok(&["volume", "delete", "data", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_mount_and_a_raw_device() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "files", "--size", "64MiB", "--fs", "ext4"]);
    at.ok(&["volume", "create", "raw", "--size", "16MiB", "--block"]);
    let (target, device) = (at.path("mnt"), at.path("device"));
    at.ok(&["volume", "mount", "files", &target, "--read-only"]);
    assert!(std::fs::write(Path::new(&target).join("new"), "x").is_err());
    // Another way to mount the same is no repetition.
    let why = at.fails(2, &["volume", "mount", "files", &target]);
    assert!(why.contains(&format!("orlop volume unmount {target}")), "{why}");
    at.ok(&["volume", "mount", "raw", &device, "--block"]);
    assert!(std::fs::metadata(&device).unwrap().file_type().is_block_device());
    Pattern::new(5).write_at(Path::new(&device), 4 * MIB, MIB);
    at.ok(&["volume", "unmount", &device]);
    // By its id as well, and by its name.
    let id = at.id(&["volume", "show", "files"]);
    at.ok(&["volume", "unmount", &id]);
    at.ok(&["volume", "mount", "files", &target]);
    at.ok(&["volume", "unmount", "files"]);
    at.ok(&["volume", "mount", "raw", &device, "--block"]);
    let why = at.fails(2, &["volume", "unmount", "files"]);
    assert!(why.contains(&format!("mounted by hand are: {device}")), "{why}");
    at.ok(&["volume", "unmount", "raw"]);
    let why = at.fails(2, &["volume", "unmount", "raw"]);
    let notes = at.pool.scratch().join("run/.client");
    assert!(why.contains("ORLOP_RUN_DIR") && why.contains(notes.to_str().unwrap()), "{why}");
    at.ok(&["volume", "mount", "raw", &device, "--block"]);
    Pattern::new(5).check_at(Path::new(&device), 4 * MIB, MIB);
    at.ok(&["volume", "unmount", &device]);
    at.ok(&["volume", "delete", "files", "raw", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_mounted_twice_is_not_enough_to_unmount() {
    needs_root!();
    let at = Terminal::new().await;
    let shared = ["--access-mode", "single-node-multi-writer"];
    at.ok(
        &[&["volume", "create", "shared", "--size", "64MiB", "--fs", "ext4"], &shared[..]].concat()
    );
    let (first, second) = (at.path("first"), at.path("second"));
    for target in [&first, &second] {
        at.ok(&[&["volume", "mount", "shared", target], &shared[..]].concat());
    }
    let why = at.fails(2, &["volume", "unmount", "shared"]);
    assert!(why.contains("more than once") && why.contains(&second), "{why}");
    at.ok(&["volume", "unmount", &second]);
    at.ok(&["volume", "unmount", "shared"]);
    at.ok(&["volume", "delete", "shared", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_mounted_where_it_cannot_be() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "raw", "--size", "16MiB", "--block"]);
    let target = at.path("mnt");
    // What the volume is not made for: the plugin refuses it, and all is as it was before.
    let why = at.fails(3, &["volume", "mount", "raw", &target]);
    assert!(why.contains("the plugin refused it ("), "{why}");
    assert_eq!(at.json(&["volume", "show", "raw"])["published_nodes"], serde_json::json!([]));
    at.fails(2, &["volume", "mount", "raw", &at.path("no/such/parent")]);
    let pool = at.pool.path.to_str().unwrap();
    let why = at.fails(2, &["volume", "mount", "raw", pool, "--block"]);
    assert!(why.contains("is a directory"), "{why}");
    let why = at.fails(2, &["volume", "mount", "raw", pool]);
    assert!(why.contains("something else is mounted there"), "{why}");
    at.ok(&["volume", "mount", "raw", &target, "--block", "--dry-run"]);
    assert!(!Path::new(&target).exists());
    at.ok(&["volume", "delete", "raw", "--yes"]);
}

/// /etc/passwd would be hidden from all programs.
#[tokio::test(flavor = "multi_thread")]
async fn a_raw_device_hides_no_file_and_gives_back_an_empty_one() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "raw", "--size", "16MiB", "--block"]);
    let (full, empty, node) = (at.path("full"), at.path("empty"), at.path("node"));
    std::fs::write(&full, "x").unwrap();
    orlop_sys::tool::run("mknod", [&node, "c", "1", "3"]).unwrap();
    for target in [&full, &node] {
        let why = at.fails(2, &["volume", "mount", "raw", target, "--block"]);
        assert!(why.contains("would be hidden"), "{why}");
    }
    assert_eq!(std::fs::read(&full).unwrap(), b"x");
    std::fs::write(&empty, "").unwrap();
    std::fs::set_permissions(&empty, PermissionsExt::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&empty, Some(1000), Some(1001)).unwrap();
    at.ok(&["volume", "mount", "raw", &empty, "--block"]);
    at.ok(&["volume", "unmount", &empty]);
    let left = std::fs::symlink_metadata(&empty).unwrap();
    assert!(left.is_file() && left.mode() & 0o7777 == 0o640, "as it was before");
    assert_eq!((left.uid(), left.gid()), (1000, 1001));
    at.ok(&["volume", "delete", "raw", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_changed_and_shown() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "data", "--size", "16MiB", "--block", "--mutable", "readIops=500"]);
    let limits = |at: &Terminal| at.json(&["volume", "show", "data"])["limits"].clone();
    assert_eq!(limits(&at), serde_json::json!({"readIops": "500"}));
    let said = at.ok(&["volume", "limit", "data", "--write-rate", "10MiB", "--read-iops", "none"]);
    assert!(said.contains("writeBytesPerSecond=10485760"), "{said}");
    assert_eq!(limits(&at), serde_json::json!({"writeBytesPerSecond": "10485760"}));
    at.ok(&["volume", "limit", "data", "writeIops=7", "writeBytesPerSecond=max"]);
    assert_eq!(limits(&at), serde_json::json!({"writeIops": "7"}));
    let why = at.fails(3, &["volume", "limit", "data", "speed=fast"]);
    assert!(why.contains("the plugin refused it (INVALID_ARGUMENT)"), "{why}");
    at.fails(2, &["volume", "limit", "data"]);
    // Ten bytes per second, most likely by mistake.
    let why = at.fails(2, &["volume", "limit", "data", "--write-rate", "10"]);
    assert!(why.contains("it has no unit; write 10MiB"), "{why}");
    at.fails(2, &["volume", "limit", "data", "writeIops=1", "--write-iops", "2"]);
    at.ok(&["volume", "limit", "data", "--write-iops", "1", "--dry-run"]);
    assert_eq!(limits(&at), serde_json::json!({"writeIops": "7"}));
    at.ok(&["volume", "delete", "data", "--yes"]);
}

/// A process in another mount namespace keeps the volume. What was done and what is left is said, then and afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_unmount_says_what_is_left_of_it() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "data", "--size", "64MiB", "--fs", "ext4"]);
    let target = at.path("mnt");
    at.ok(&["volume", "mount", "data", &target]);
    let file = Path::new(&target).join("file");
    std::fs::write(&file, "read elsewhere").unwrap();
    let holder = MountHolder::reading(&file, &[Path::new(&target)]);
    for _ in 0..2 {
        let why = at.fails(3, &["volume", "unmount", "data"]);
        assert!(why.contains(&format!("no longer mounted at {target}")), "{why}");
        assert!(why.contains(&format!("`orlop volume unmount {target}` again")), "{why}");
        assert!(mount_at(Path::new(&target)).unwrap().is_none());
        let why = at.fails(3, &["volume", "delete", "data", "--yes"]);
        assert!(why.contains("nothing is mounted there") && why.contains("not complete"), "{why}");
    }
    drop(holder);
    // The kernel lets go of a namespace some time after its last process.
    while !at.daemon.launch().run(&["volume", "unmount", &target]).status.success() {}
    at.ok(&["volume", "delete", "data", "--yes"]);
}
