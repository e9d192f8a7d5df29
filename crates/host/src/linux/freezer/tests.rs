mod killed;

use std::path::Path;
use std::time::{Duration, Instant};

use orlop_model::{Error, FsType, HostFreezing, TargetPath};
use orlop_sys::filesystem::{self as fs, ThawOutcome};

use super::super::LinuxHost;
use super::super::testbed::Testbed;

/// The kernel tells: freezing again what is frozen gives EBUSY.
fn is_frozen(mount: &TargetPath) -> bool {
    match fs::freeze(mount.as_path()) {
        Err(error) if error.is_busy() => true,
        Err(error) => panic!("{error}"),
        Ok(()) => {
            fs::ensure_thawed(mount.as_path()).unwrap();
            false
        }
    }
}

fn markers(run_dir: &Path) -> usize {
    std::fs::read_dir(run_dir.join("frozen")).unwrap().count()
}

#[test]
fn frozen_filesystem_blocks_writers() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    for fs in FsType::ALL {
        let staged = testbed.mounted(&host, fs, fs.as_str());
        host.freeze(&staged.path).unwrap();
        assert!(is_frozen(&staged.path), "{fs}");
        assert_eq!(markers(&testbed.file("run")), 1);

        let file = staged.path.as_path().join("file");
        let writer = std::thread::spawn(move || std::fs::write(file, "at last"));
        assert!(host.ensure_thawed(&staged.path).unwrap(), "{fs}");
        writer.join().unwrap().unwrap();
        assert!(!is_frozen(&staged.path), "{fs}");
        assert_eq!(markers(&testbed.file("run")), 0);
        assert!(!host.ensure_thawed(&staged.path).unwrap(), "not frozen now");
    }
}

#[test]
fn several_filesystems_are_frozen_at_once() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let one = testbed.mounted(&host, FsType::Ext4, "one");
    let two = testbed.mounted(&host, FsType::Xfs, "two");
    for _ in 0..3 {
        host.freeze(&one.path).unwrap();
        host.freeze(&two.path).unwrap();
        assert!(host.ensure_thawed(&one.path).unwrap());
        assert!(is_frozen(&two.path));
        assert!(host.ensure_thawed(&two.path).unwrap());
    }
}

#[test]
fn watchdog_ends_an_overdue_freeze() {
    let Some(testbed) = Testbed::new() else { return };
    let mut config = testbed.config();
    config.freeze_limit = Duration::from_millis(50);
    let host = LinuxHost::new(config).unwrap();
    let staged = testbed.mounted(&host, FsType::Xfs, "stage");
    for _ in 0..2 {
        host.freeze(&staged.path).unwrap();
        let generous = Instant::now() + Duration::from_secs(60);
        while markers(&testbed.file("run")) > 0 {
            assert!(Instant::now() < generous, "the watchdog did not thaw");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!is_frozen(&staged.path));
        assert!(!host.ensure_thawed(&staged.path).unwrap());
    }
}

#[test]
fn new_process_thaws_orphaned_freezes() {
    let Some(testbed) = Testbed::new() else { return };
    let old = testbed.host();
    let staged = testbed.mounted(&old, FsType::Ext4, "stage");
    let gone = testbed.mounted(&old, FsType::Xfs, "gone");
    for mount in [&staged.path, &gone.path] {
        old.freeze(mount).unwrap();
    }
    drop(old);
    fs::ensure_thawed(gone.path.as_path()).unwrap();
    orlop_sys::mounts::ensure_unmounted(gone.path.as_path()).unwrap();
    std::fs::remove_dir(gone.path.as_path()).unwrap();
    std::fs::write(testbed.file("run/frozen/.half-written.new"), "/").unwrap();
    assert!(is_frozen(&staged.path));

    testbed.host().begin_to_thaw_left_frozen().unwrap().wait();
    assert!(!is_frozen(&staged.path));
    assert_eq!(markers(&testbed.file("run")), 1, "but for the half-written one");
}

#[test]
fn foreign_file_among_freeze_records_is_kept() {
    let Some(testbed) = Testbed::new() else { return };
    let old = testbed.host();
    let staged = testbed.mounted(&old, FsType::Ext4, "stage");
    old.freeze(&staged.path).unwrap();
    drop(old);
    let foreign = ["a-directory", "not-text", "no-path", "a-loop"];
    let at = |name: &str| testbed.file(&format!("run/frozen/{name}"));
    std::fs::create_dir(at("a-directory")).unwrap();
    std::fs::write(at("not-text"), [0xff, 0xfe]).unwrap();
    std::fs::write(at("no-path"), "").unwrap();
    std::os::unix::fs::symlink("a-loop", at("a-loop")).unwrap();

    testbed.host().begin_to_thaw_left_frozen().unwrap().wait();
    assert!(!is_frozen(&staged.path));
    assert_eq!(markers(&testbed.file("run")), foreign.len(), "only what was ours is gone");
}

#[test]
fn foreign_freeze_is_left_alone() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Ext4, "stage");
    fs::freeze(staged.path.as_path()).unwrap();
    let refused = host.freeze(&staged.path);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    assert_eq!(markers(&testbed.file("run")), 0);
    let outcome = fs::ensure_thawed(staged.path.as_path()).unwrap();
    assert_eq!(outcome, ThawOutcome::Thawed);
    host.freeze(&staged.path).unwrap();
    assert!(host.ensure_thawed(&staged.path).unwrap());
}

#[test]
fn refused_second_freeze_keeps_the_first() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Ext4, "stage");
    host.freeze(&staged.path).unwrap();
    let refused = host.freeze(&staged.path);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    assert_eq!(markers(&testbed.file("run")), 1);
    assert!(host.ensure_thawed(&staged.path).unwrap());
}

#[test]
fn thaw_by_another_process_is_detected() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Btrfs, "stage");
    host.freeze(&staged.path).unwrap();
    fs::ensure_thawed(staged.path.as_path()).unwrap();
    assert!(!host.ensure_thawed(&staged.path).unwrap());
}

#[test]
fn path_without_a_volume_is_not_frozen() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    std::fs::create_dir(testbed.file("plain")).unwrap();
    for name in ["plain", "missing"] {
        let refused = host.freeze(&testbed.path(name));
        assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
        assert!(!host.ensure_thawed(&testbed.path(name)).unwrap());
    }
}
