//! Snapshots: taken, compared, looked into, restored.

use std::path::Path;

use orlop_tests::*;

use super::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_taken_looked_into_and_restored() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "data", "--size", "300MiB", "--fs", "xfs"]);
    let (target, inside) = (at.path("mnt"), at.path("inside"));
    at.ok(&["volume", "mount", "data", &target]);
    let file = |directory: &str| Path::new(directory).join("file");
    Pattern::new(1).write(&file(&target), 3 * MIB);
    let snapshot = at.json(&["snapshot", "create", "data", "before"]);
    assert_eq!(snapshot["consistency"], "filesystem");
    Pattern::new(2).write(&file(&target), 3 * MIB);

    let said = at.ok(&["snapshot", "mount", "before", &inside]);
    assert!(said.contains("read-only") && said.contains("and deletes this volume"), "{said}");
    // Again: the same volume, the same mount.
    at.ok(&["snapshot", "mount", "before", &inside]);
    assert_eq!(at.volumes(), 2);
    Pattern::new(1).check(&file(&inside), 3 * MIB);
    assert!(std::fs::write(Path::new(&inside).join("new"), "x").is_err());
    at.ok(&["snapshot", "unmount", &inside]);
    assert_eq!(at.volumes(), 1);

    let said = at.ok(&["snapshot", "restore", "before", "back"]);
    assert!(said.starts_with("restored to volume back ("), "{said}");
    // Again: it is not as the snapshot any more, if it was written to.
    let said = at.ok(&["snapshot", "restore", "before", "back"]);
    assert!(said.contains("exists already") && said.contains("nothing was done"), "{said}");
    at.ok(&["volume", "create", "clone", "--from-volume", "data"]);
    let (back, clone) = (at.path("back"), at.path("clone"));
    at.ok(&["volume", "mount", "back", &back]);
    at.ok(&["volume", "mount", "clone", &clone]);
    Pattern::new(1).check(&file(&back), 3 * MIB);
    Pattern::new(2).check(&file(&clone), 3 * MIB);

    let shown = at.json(&["volume", "show", "data"]);
    let copies = &shown["copies"];
    assert_eq!(copies[0]["kind"], "snapshot");
    assert_eq!(copies[0]["name"], "before");
    assert_eq!(copies[0]["copies"][0]["name"], "back");
    assert_eq!(copies[1]["name"], "clone");
    let text = at.ok(&["volume", "show", "data"]);
    assert!(text.contains("├─ snapshot ") && text.contains("│  └─ volume "), "{text}");
    let shown = at.json(&["snapshot", "show", "before"]);
    assert_eq!(shown["copies"][0]["name"], "back");
    let listed = at.json(&["snapshot", "list", "--volume", "data"]);
    assert_eq!(listed[0]["name"], "before");
    assert_eq!(at.json(&["snapshot", "list", "--volume", "clone"]), serde_json::json!([]));

    for target in [&target, &back, &clone] {
        at.ok(&["volume", "unmount", target]);
    }
    at.ok(&["volume", "delete", "data", "back", "clone", "--yes"]);
    // It outlives its volume, and is still found by what is left of it.
    let source = snapshot["source_volume"].as_str().unwrap();
    assert_eq!(at.json(&["snapshot", "list", "--volume", source])[0]["name"], "before");
    at.fails(2, &["snapshot", "delete", "before"]);
    at.ok(&["snapshot", "delete", "before", "--dry-run"]);
    at.ok(&["snapshot", "delete", "before", "--yes"]);
    assert_eq!(at.json(&["snapshot", "list"]), serde_json::json!([]));
}

/// A mount that fails leaves no volume behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_raw_volume_is_looked_into_as_a_device() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "raw", "--size", "16MiB", "--block"]);
    let device = at.path("device");
    at.ok(&["volume", "mount", "raw", &device, "--block"]);
    Pattern::new(9).write_at(Path::new(&device), MIB, MIB);
    at.ok(&["snapshot", "create", "raw", "cut"]);
    at.ok(&["volume", "unmount", &device]);
    let inside = at.path("inside");
    at.fails(3, &["snapshot", "mount", "cut", &inside]);
    assert_eq!(at.volumes(), 1);
    at.ok(&["snapshot", "mount", "cut", &inside, "--block"]);
    Pattern::new(9).check_at(Path::new(&inside), MIB, MIB);
    at.ok(&["volume", "unmount", &inside]);
    assert_eq!(at.volumes(), 1);
    at.ok(&["volume", "delete", "raw", "--yes"]);
    at.ok(&["snapshot", "delete", "cut", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_blocks_are_ranges_a_sum_and_a_bar() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "raw", "--size", "64MiB", "--block"]);
    let device = at.path("device");
    at.ok(&["volume", "mount", "raw", &device, "--block"]);
    let write = |offset: u64| write_direct(Path::new(&device), offset, &vec![7; 1 << 20]).unwrap();
    write(0);
    at.ok(&["snapshot", "create", "raw", "a"]);
    write(32 * MIB);
    write(33 * MIB);
    at.ok(&["snapshot", "create", "raw", "b"]);
    at.ok(&["volume", "unmount", &device]);

    let changed = at.json(&["snapshot", "diff", "a", "b"]);
    let range = |offset: u64, size: u64| serde_json::json!({"offset": offset, "size_bytes": size});
    assert_eq!(changed["ranges"], serde_json::json!([range(32 * MIB, 2 * MIB)]));
    assert_eq!(changed["total_bytes"], 2 * MIB);
    assert_eq!(changed["volume_bytes"], 64 * MIB);
    let written = at.json(&["snapshot", "allocated", "b"]);
    assert_eq!(written["ranges"], serde_json::json!([range(0, MIB), range(32 * MIB, 2 * MIB)]));
    let bar = at.ok(&["snapshot", "allocated", "b", "--bar", "--width", "8"]);
    assert_eq!(bar, "[░···▒···]\nwritten: 3.0 MiB of 64.0 MiB, in 2 ranges\n");
    let why = at.fails(3, &["snapshot", "diff", "b", "a"]);
    assert!(why.contains("swap the two snapshots: `orlop snapshot diff a b`"), "{why}");
    let same = at.ok(&["snapshot", "diff", "b", "b"]);
    assert_eq!(same, "changed: 0 bytes of 64.0 MiB, in 0 ranges\n");
    at.ok(&["volume", "delete", "raw", "--yes"]);
    at.ok(&["snapshot", "delete", "a", "b", "--yes"]);
}
