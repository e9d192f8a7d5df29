//! Volumes from files and to files.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use orlop_sys::tool;
use orlop_tests::*;

use super::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn an_image_comes_back_as_it_went_in() {
    needs_root!();
    let at = Terminal::new().await;
    let (image, back) = (at.path("image"), at.path("back"));
    File::create(&image).unwrap().set_len(64 * MIB + 4096).unwrap();
    Pattern::new(4).write_at(Path::new(&image), 3 * MIB + 4096, 2 * MIB);
    Pattern::new(5).write_at(Path::new(&image), 64 * MIB, 4096);
    let said = at.json(&["volume", "import", &image, "disk"]);
    assert_eq!(said["verified"], true);
    assert_eq!(said["image_bytes"], 64 * MIB + 4096);
    assert!(said["written_bytes"].as_u64().unwrap() <= 5 * MIB, "sparse: {said}");
    at.ok(&["volume", "export", "disk", &back]);
    let exported = std::fs::metadata(&back).unwrap();
    assert_eq!(exported.len(), 65 * MIB);
    assert_eq!(exported.mode() & 0o777, 0o600, "as closed as the pool is");
    assert!(exported.blocks() * 512 < 10 * MIB, "sparse: {} blocks", exported.blocks());
    Pattern::new(4).check_at(Path::new(&back), 3 * MIB + 4096, 2 * MIB);
    Pattern::new(5).check_at(Path::new(&back), 64 * MIB, 4096);
    assert!(is_all_zero(Path::new(&back), 0, 3 * MIB));
    assert!(is_all_zero(Path::new(&back), 6 * MIB, 58 * MIB));

    // Neither a volume nor a file is overwritten by mistake.
    let why = at.fails(3, &["volume", "import", &image, "disk"]);
    assert!(why.contains("is not overwritten"), "{why}");
    let why = at.fails(2, &["volume", "export", "disk", &back]);
    assert!(why.contains("--overwrite"), "{why}");
    at.ok(&["volume", "export", "disk", &back, "--overwrite"]);
    // What it was made out of is gone.
    assert_eq!(at.volumes(), 1);
    at.ok(&["volume", "delete", "disk", "--yes"]);
    at.ok(&["volume", "import", &image, "disk", "--no-verify", "--size", "100MiB"]);
    assert_eq!(at.json(&["volume", "show", "disk"])["size_bytes"], 100 * MIB);
    at.ok(&["volume", "delete", "disk", "--yes"]);
}

/// It is exported while a workload has it mounted.
#[tokio::test(flavor = "multi_thread")]
async fn a_filesystem_in_an_image_can_be_mounted_and_exported_in_use() {
    needs_root!();
    let at = Terminal::new().await;
    let (image, back, target) = (at.path("image"), at.path("back"), at.path("mnt"));
    File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    tool::run("mkfs.ext4", ["-q", "-b", "4096", &image]).unwrap();
    assert_eq!(at.json(&["volume", "import", &image, "disk"])["mountable"], true);
    at.ok(&["volume", "mount", "disk", &target]);
    let file = Path::new(&target).join("file");
    Pattern::new(6).write(&file, 2 * MIB);
    at.ok(&["volume", "export", "disk", &back]);
    at.ok(&["snapshot", "create", "disk", "cut"]);
    Pattern::new(7).write(&file, 2 * MIB);
    let older = at.path("older");
    at.ok(&["snapshot", "export", "cut", &older]);
    at.ok(&["volume", "unmount", &target]);
    let copy = at.path("copy");
    for exported in [&back, &older] {
        tool::run("debugfs", ["-R", &format!("dump file {copy}"), exported]).unwrap();
        Pattern::new(6).check(Path::new(&copy), 2 * MIB);
        std::fs::remove_file(&copy).unwrap();
    }
    at.ok(&["volume", "delete", "disk", "--yes"]);
    at.ok(&["snapshot", "delete", "cut", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_imported_is_refused_before_a_volume_is_made() {
    needs_root!();
    let at = Terminal::new().await;
    let file = at.path("image");
    for (contents, why) in [(&b"QFI\xfb and more"[..], "qcow2"), (b"", "empty")] {
        std::fs::write(&file, contents).unwrap();
        let said = at.fails(2, &["volume", "import", &file, "disk"]);
        assert!(said.contains(why), "{said}");
    }
    at.fails(2, &["volume", "import", &at.path("missing"), "disk"]);
    at.fails(2, &["volume", "import", at.pool.path.to_str().unwrap(), "disk"]);
    File::create(&file).unwrap().set_len(8 * MIB).unwrap();
    at.fails(2, &["volume", "import", &file, "disk", "--size", "4MiB"]);
    at.ok(&["volume", "import", &file, "disk", "--dry-run"]);
    assert_eq!(at.volumes(), 0);
}

/// Units that are smaller than the sectors of a volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_filesystem_with_small_units_says_why_it_is_not_mounted() {
    needs_root!();
    let at = Terminal::new().await;
    let (file, target) = (at.path("image"), at.path("mnt"));
    for (words, unit, better) in [
        (&["mkfs.ext4", "-q", "-b", "1024"][..], "blocks of 1024 bytes", "mkfs.ext4 -b 4096"),
        (&["mkfs.xfs", "-q", "-f"], "sectors of 512 bytes", "mkfs.xfs -s size=4096"),
    ] {
        File::create(&file).unwrap().set_len(320 * MIB).unwrap();
        tool::run(words[0], words[1..].iter().copied().chain([file.as_str()])).unwrap();
        let ran = at.daemon.launch().run(&["volume", "import", &file, "disk"]);
        let says = |text: &str| text.contains(unit) && text.contains(better);
        assert!(ran.status.success() && says(&ran.stderr), "{ran:?}");
        let why = at.fails(3, &["volume", "mount", "disk", &target]);
        assert!(why.contains("FAILED_PRECONDITION") && says(&why), "{why}");
        assert!(!Path::new(&target).exists());
        at.ok(&["volume", "delete", "disk", "--yes"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_holds_a_disk_is_not_taken_for_one() {
    needs_root!();
    let at = Terminal::new().await;
    let file = at.path("image");
    File::create(&file).unwrap().set_len(MIB).unwrap();
    std::os::unix::fs::FileExt::write_all_at(
        &File::options().write(true).open(&file).unwrap(),
        b"KDMV",
        0,
    )
    .unwrap();
    let why = at.fails(2, &["volume", "import", &file, "disk"]);
    assert!(why.contains("VMDK") && why.contains("qemu-img convert"), "{why}");
    assert_eq!(at.volumes(), 0);
    let words = ["volume", "import", &file, "disk", "--format", "raw"];
    let ran = at.daemon.launch().run(&words);
    assert!(ran.status.success() && ran.stderr.contains("no filesystem"), "{ran:?}");
    at.ok(&["volume", "delete", "disk", "--yes"]);
}

/// An operator who names a device would believe that it has the data.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_replaces_files_and_nothing_else() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "disk", "--size", "16MiB", "--block"]);
    let (node, file, link) = (at.path("node"), at.path("file"), at.path("link"));
    tool::run("mknod", [&node, "b", "7", "4000"]).unwrap();
    for words in [&["--overwrite"][..], &[]] {
        let why = at.fails(2, &[&["volume", "export", "disk", &node], words].concat());
        assert!(why.contains("not a regular file"), "{why}");
    }
    assert!(std::fs::metadata(&node).unwrap().file_type().is_block_device());
    // A link stays, and what it leads to is replaced.
    std::fs::write(&file, "older").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    at.fails(2, &["volume", "export", "disk", &link]);
    at.ok(&["volume", "export", "disk", &link, "--overwrite"]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 16 * MIB);
    assert_eq!(at.volumes(), 1);
    at.ok(&["volume", "delete", "disk", "--yes"]);
}
