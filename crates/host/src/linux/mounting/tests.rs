mod protected_paths;

use std::fs::File;

use orlop_model::HostMounts;

use super::super::testbed::{MIB, Testbed, read_write};
use super::*;

fn assert_refused(outcome: Result<()>) -> String {
    match outcome {
        Err(Error::Precondition(text)) => text.to_string(),
        other => panic!("should be refused: {other:?}"),
    }
}

#[test]
fn occupied_path_is_refused() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let one = testbed.mounted(&host, FsType::Ext4, "one");
    let two = testbed.mounted(&host, FsType::Btrfs, "two");
    let target = testbed.path("target");
    host.ensure_bound_directory(&one.path, &target, false).unwrap();

    assert_refused(host.ensure_mounted(&read_write(&two.device, FsType::Btrfs), &one.path));
    assert_refused(host.ensure_bound_directory(&two.path, &target, false));
    assert_refused(host.ensure_bound_directory(&one.path, &target, true));
    assert_refused(host.ensure_bound_device(&one.device, &target));
    let there = host.mount_at(&target).unwrap().unwrap();
    assert!(there.is_of(&one.device), "nothing was mounted over it");
}

#[test]
fn mount_with_other_access_is_refused() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    for fs in FsType::ALL {
        let staged = testbed.mounted(&host, fs, fs.as_str());
        let writing = read_write(&staged.device, fs);
        let reading = MountRequest { read_only: true, ..writing.clone() };
        assert_refused(host.ensure_mounted(&reading, &staged.path));
        host.ensure_unmounted(&staged.path).unwrap();
        for _ in 0..2 {
            host.ensure_mounted(&reading, &staged.path).unwrap();
        }
        assert_refused(host.ensure_mounted(&writing, &staged.path));

        let target = testbed.path("target");
        for _ in 0..2 {
            host.ensure_bound_directory(&staged.path, &target, false).unwrap();
        }
        assert!(host.mount_at(&target).unwrap().unwrap().read_only, "{fs}");
        host.ensure_unmounted(&target).unwrap();
    }
}

#[test]
fn an_empty_directory_is_not_published() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let (source, target) = (testbed.path("stage"), testbed.path("target"));
    assert_refused(host.ensure_bound_directory(&source, &target, false));
    std::fs::create_dir(source.as_path()).unwrap();
    assert_refused(host.ensure_bound_directory(&source, &target, false));
    assert!(!target.as_path().exists());
}

#[test]
fn path_without_a_mount_is_unoccupied() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    std::fs::create_dir(testbed.file("directory")).unwrap();
    std::fs::write(testbed.file("file"), "").unwrap();
    std::os::unix::fs::symlink("/", testbed.file("link")).unwrap();
    for name in ["missing", "missing/below", "directory", "file", "file/below", "link"] {
        assert_eq!(host.mount_at(&testbed.path(name)).unwrap(), None, "{name}");
        host.ensure_unmounted(&testbed.path(name)).unwrap();
    }
}

#[test]
fn failed_mount_leaves_no_mount_point() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let blank = testbed.device("blank", 16 * MIB);
    let target = testbed.path("target");
    let failed = host.ensure_mounted(&read_write(&blank, FsType::Ext4), &target);
    assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?}");
    assert!(!target.as_path().exists());

    let gone = Device { path: testbed.file("no-such-node"), ..blank };
    assert!(host.ensure_bound_device(&gone, &target).is_err());
    assert!(!target.as_path().exists());
}

#[test]
fn symlink_is_not_mounted_over() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Ext4, "stage");
    std::fs::create_dir(testbed.file("elsewhere")).unwrap();
    std::os::unix::fs::symlink(testbed.file("elsewhere"), testbed.file("link")).unwrap();
    let link = testbed.path("link");
    assert!(host.ensure_bound_directory(&staged.path, &link, false).is_err());
    assert!(host.ensure_bound_device(&staged.device, &link).is_err());
    assert_eq!(host.mount_at(&testbed.path("elsewhere")).unwrap(), None);
    assert!(testbed.file("link").is_symlink());
}

#[test]
fn mount_error_has_the_kernels_reason_without_options() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Ext4, "stage");
    host.ensure_unmounted(&staged.path).unwrap();
    let request = MountRequest {
        options: vec!["noatime".to_owned(), "commit=hunter2".to_owned()],
        ..read_write(&staged.device, FsType::Ext4)
    };
    let error = host.ensure_mounted(&request, &staged.path).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("[mount option]"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("commit"), "{text}");
    assert!(text.contains(staged.device.path.to_str().unwrap()), "{text}");
}

#[test]
fn a_busy_mount_stays_until_it_is_free() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Xfs, "stage");
    let open = File::create(staged.path.as_path().join("open")).unwrap();
    let text = assert_refused(host.ensure_unmounted(&staged.path));
    assert!(text.contains("busy"), "{text}");
    assert_refused(host.ensure_target_removed(&staged.path));
    drop(open);
    host.ensure_unmounted(&staged.path).unwrap();
    host.ensure_target_removed(&staged.path).unwrap();
}

#[test]
fn missing_or_empty_target_is_removed() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    std::fs::write(testbed.file("file"), "").unwrap();
    for name in ["missing", "missing/below", "file/below", "file"] {
        host.ensure_target_removed(&testbed.path(name)).unwrap();
        assert!(!testbed.file(name).exists(), "{name}");
    }
}

#[test]
fn files_below_a_target_are_not_removed() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    std::fs::create_dir(testbed.file("target")).unwrap();
    std::fs::write(testbed.file("target/stray"), "precious").unwrap();
    let text = assert_refused(host.ensure_target_removed(&testbed.path("target")));
    assert!(text.contains("move them away"), "{text}");
    assert!(testbed.file("target/stray").exists());
}

#[test]
fn a_target_that_holds_data_is_not_removed() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    std::fs::write(bed.file("target"), "precious").unwrap();
    std::os::unix::fs::symlink("target", bed.file("link")).unwrap();
    for name in ["target", "link"] {
        let text = assert_refused(host.ensure_target_removed(&bed.path(name)));
        assert!(text.contains("move it away"), "{text}");
    }
    assert_eq!(std::fs::read(bed.file("link")).unwrap(), b"precious");
}
