mod killed;

use std::path::Path;
use std::time::{Duration, Instant};

use orlop_model::{Error, FsType, Host, TargetPath};
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
fn a_frozen_filesystem_holds_its_writers() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    for fs in FsType::ALL {
        let staged = bed.mounted(&host, fs, fs.as_str());
        host.freeze(&staged.path).unwrap();
        assert!(is_frozen(&staged.path), "{fs}");
        assert_eq!(markers(&bed.file("run")), 1);

        let file = staged.path.as_path().join("file");
        let writer = std::thread::spawn(move || std::fs::write(file, "at last"));
        assert!(host.ensure_thawed(&staged.path).unwrap(), "{fs}");
        writer.join().unwrap().unwrap();
        assert!(!is_frozen(&staged.path), "{fs}");
        assert_eq!(markers(&bed.file("run")), 0);
        assert!(!host.ensure_thawed(&staged.path).unwrap(), "not frozen now");
    }
}

#[test]
fn several_are_frozen_at_once() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let one = bed.mounted(&host, FsType::Ext4, "one");
    let two = bed.mounted(&host, FsType::Xfs, "two");
    for _ in 0..3 {
        host.freeze(&one.path).unwrap();
        host.freeze(&two.path).unwrap();
        assert!(host.ensure_thawed(&one.path).unwrap());
        assert!(is_frozen(&two.path));
        assert!(host.ensure_thawed(&two.path).unwrap());
    }
}

#[test]
fn the_watchdog_ends_a_freeze_that_its_caller_does_not() {
    let Some(bed) = Testbed::new() else { return };
    let mut config = bed.config();
    config.freeze_limit = Duration::from_millis(50);
    let host = LinuxHost::new(config).unwrap();
    let staged = bed.mounted(&host, FsType::Xfs, "stage");
    for _ in 0..2 {
        host.freeze(&staged.path).unwrap();
        let generous = Instant::now() + Duration::from_secs(60);
        while markers(&bed.file("run")) > 0 {
            assert!(Instant::now() < generous, "the watchdog did not thaw");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!is_frozen(&staged.path));
        assert!(!host.ensure_thawed(&staged.path).unwrap());
    }
}

#[test]
fn a_new_process_thaws_what_the_old_one_left() {
    let Some(bed) = Testbed::new() else { return };
    let old = bed.host();
    let staged = bed.mounted(&old, FsType::Ext4, "stage");
    let gone = bed.mounted(&old, FsType::Xfs, "gone");
    for mount in [&staged.path, &gone.path] {
        old.freeze(mount).unwrap();
    }
    drop(old);
    fs::ensure_thawed(gone.path.as_path()).unwrap();
    orlop_sys::mounts::ensure_unmounted(gone.path.as_path()).unwrap();
    std::fs::remove_dir(gone.path.as_path()).unwrap();
    std::fs::write(bed.file("run/frozen/.half-written.new"), "/").unwrap();
    assert!(is_frozen(&staged.path));

    bed.host().thaw_left_frozen().unwrap();
    assert!(!is_frozen(&staged.path));
    assert_eq!(markers(&bed.file("run")), 1, "but for the half-written one");
}

#[test]
fn what_is_no_note_of_a_freeze_is_ignored_and_kept() {
    let Some(bed) = Testbed::new() else { return };
    let old = bed.host();
    let staged = bed.mounted(&old, FsType::Ext4, "stage");
    old.freeze(&staged.path).unwrap();
    drop(old);
    let foreign = ["a-directory", "not-text", "no-path", "a-loop"];
    let at = |name: &str| bed.file(&format!("run/frozen/{name}"));
    std::fs::create_dir(at("a-directory")).unwrap();
    std::fs::write(at("not-text"), [0xff, 0xfe]).unwrap();
    std::fs::write(at("no-path"), "").unwrap();
    std::os::unix::fs::symlink("a-loop", at("a-loop")).unwrap();

    bed.host().thaw_left_frozen().unwrap();
    assert!(!is_frozen(&staged.path));
    assert_eq!(markers(&bed.file("run")), foreign.len(), "only what was ours is gone");
}

#[test]
fn the_freeze_of_another_is_left_alone() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let staged = bed.mounted(&host, FsType::Ext4, "stage");
    fs::freeze(staged.path.as_path()).unwrap();
    let refused = host.freeze(&staged.path);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    assert_eq!(markers(&bed.file("run")), 0);
    let outcome = fs::ensure_thawed(staged.path.as_path()).unwrap();
    assert_eq!(outcome, ThawOutcome::Thawed);
    host.freeze(&staged.path).unwrap();
    assert!(host.ensure_thawed(&staged.path).unwrap());
}

#[test]
fn a_second_freeze_does_not_spoil_the_first() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let staged = bed.mounted(&host, FsType::Ext4, "stage");
    host.freeze(&staged.path).unwrap();
    let refused = host.freeze(&staged.path);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    assert_eq!(markers(&bed.file("run")), 1);
    assert!(host.ensure_thawed(&staged.path).unwrap());
}

#[test]
fn a_thaw_by_another_is_noticed() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let staged = bed.mounted(&host, FsType::Btrfs, "stage");
    host.freeze(&staged.path).unwrap();
    fs::ensure_thawed(staged.path.as_path()).unwrap();
    assert!(!host.ensure_thawed(&staged.path).unwrap());
}

#[test]
fn what_is_no_volume_is_not_frozen() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    std::fs::create_dir(bed.file("plain")).unwrap();
    for name in ["plain", "missing"] {
        let refused = host.freeze(&bed.path(name));
        assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
        assert!(!host.ensure_thawed(&bed.path(name)).unwrap());
    }
}
