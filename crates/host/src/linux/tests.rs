use std::os::unix::fs::{MetadataExt, PermissionsExt};

use orlop_model::{
    Error, FsType, HostDevices, HostFilesystems, HostMounts, HostRecords, NameDigest, NodeRecord,
    PoolId, VolumeId,
};
use rustix::io::Errno;

use super::testbed::{MIB, SMALL, Testbed, read_write};
use super::*;

fn errno(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

fn lives_a_whole_life(fs: FsType) {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, fs, "stage");
    let (writable, readable) = (testbed.path("pods/a/mount"), testbed.path("pods/b/mount"));

    // Everything may be repeated.
    for _ in 0..2 {
        host.ensure_mounted(&read_write(&staged.device, fs), &staged.path).unwrap();
        host.ensure_bound_directory(&staged.path, &writable, false).unwrap();
        host.ensure_bound_directory(&staged.path, &readable, true).unwrap();
    }
    for (path, read_only) in [(&staged.path, false), (&writable, false), (&readable, true)] {
        let mounted = host.mount_at(path).unwrap().unwrap();
        assert!(mounted.is_of(&staged.device), "{fs} at {path}: {mounted:?}");
        assert!(!mounted.is_device_node);
        assert_eq!(mounted.read_only, read_only, "{fs} at {path}");
        assert!(!mounted.filesystem_read_only);
    }

    std::fs::write(writable.as_path().join("greeting"), "ahoy").unwrap();
    let seen = std::fs::read_to_string(readable.as_path().join("greeting")).unwrap();
    assert_eq!(seen, "ahoy");
    let refused = std::fs::write(readable.as_path().join("greeting"), "no").unwrap_err();
    assert_eq!(errno(&refused), Some(Errno::ROFS), "{fs}");

    let usage = host.usage(&writable).unwrap();
    assert!(usage.total_bytes > SMALL / 2 && usage.total_bytes <= SMALL);
    assert!(usage.available_bytes > 0 && usage.available_bytes < usage.total_bytes);

    for _ in 0..2 {
        for path in [&writable, &readable, &staged.path] {
            host.ensure_unmounted(path).unwrap();
            host.ensure_target_removed(path).unwrap();
            assert_eq!(host.mount_at(path).unwrap(), None);
            assert!(!path.as_path().exists());
        }
    }

    host.ensure_mounted(&read_write(&staged.device, fs), &staged.path).unwrap();
    let kept = std::fs::read_to_string(staged.path.as_path().join("greeting")).unwrap();
    assert_eq!(kept, "ahoy");
}

#[test]
fn xfs_lifecycle() {
    lives_a_whole_life(FsType::Xfs);
}

#[test]
fn ext4_lifecycle() {
    lives_a_whole_life(FsType::Ext4);
}

#[test]
fn btrfs_lifecycle() {
    lives_a_whole_life(FsType::Btrfs);
}

#[test]
fn raw_device_is_bound_to_a_file() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let device = testbed.device("a", 8 * MIB);
    let other = testbed.device("b", 4 * MIB);
    let target = testbed.path("block");
    assert_eq!(host.device_size(&device).unwrap(), 8 * MIB);
    for _ in 0..2 {
        host.ensure_bound_device(&device, &target).unwrap();
    }
    let mounted = host.mount_at(&target).unwrap().unwrap();
    assert!(mounted.is_of(&device) && mounted.is_device_node);
    let refused = host.ensure_bound_device(&other, &target).unwrap_err();
    assert!(matches!(refused, Error::Precondition(_)), "{refused}");

    let block = vec![7; 4096];
    std::fs::OpenOptions::new()
        .write(true)
        .open(target.as_path())
        .and_then(|mut file| std::io::Write::write_all(&mut file, &block))
        .unwrap();
    host.sync_device(&device).unwrap();
    let image = std::fs::read(testbed.file("a")).unwrap();
    assert_eq!(image[..4096], block);

    host.ensure_unmounted(&target).unwrap();
    host.ensure_target_removed(&target).unwrap();
    assert!(!target.as_path().exists());
}

#[test]
fn group_owns_the_whole_volume() {
    const GROUP: u32 = 4711;
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Ext4, "stage");
    let old = staged.path.as_path().join("old");
    std::fs::write(&old, "").unwrap();
    for _ in 0..2 {
        host.ensure_group(&staged.path, GROUP).unwrap();
    }
    let root = std::fs::metadata(staged.path.as_path()).unwrap();
    assert_eq!((root.gid(), root.mode() & 0o2070), (GROUP, 0o2070));
    let old = std::fs::metadata(old).unwrap();
    assert_eq!((old.gid(), old.mode() & 0o060), (GROUP, 0o060));
}

#[test]
fn run_directory_is_private() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    for part in ["volumes", "frozen", "limited", "inline", "pools"] {
        let metadata = std::fs::metadata(testbed.file("run").join(part)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o700, "{part}");
    }
    let id = VolumeId::new(PoolId::from_random([1; 4]), NameDigest::of_text("inline"));
    let stage = host.private_stage(&id).unwrap();
    assert_eq!(stage, testbed.path(&format!("run/inline/{id}")));
}

#[test]
fn a_relative_run_directory_is_refused() {
    let config = LinuxHostConfig {
        run_dir: "run/orlop".into(),
        alone: true,
        protected_paths: Vec::new(),
        filesystems: Some(Vec::new()),
        default_fs: None,
        workload_cgroup: "/".to_owned(),
        freeze_limit: Duration::from_secs(1),
        thaw_helper: None,
        encryption: Default::default(),
    };
    let error = LinuxHost::new(config).err().unwrap().to_string();
    assert!(error.contains("ORLOP_RUN_DIR"), "{error}");
}

#[test]
fn damaged_node_record_is_quarantined() {
    let directory = tempfile::tempdir().unwrap();
    let host = LinuxHost::new(super::testbed::config_in(directory.path())).unwrap();
    let id = VolumeId::new(PoolId::from_random([7; 4]), NameDigest::of_text("a"));
    let records = directory.path().join("run/volumes");
    let file = records.join(format!("{id}.json"));
    let kinds: [fn(&Path); 3] = [
        |file| std::fs::write(file, "").unwrap(),
        |file| std::fs::write(file, "{\"stage\":").unwrap(),
        |file| std::fs::create_dir(file).unwrap(),
    ];
    for (before, damage) in kinds.into_iter().enumerate() {
        host.mark_pool(id.pool(), Some("stamp"), "pool", Path::new("/pool")).unwrap();
        assert!(host.is_marked_pool(id.pool(), "stamp").unwrap());
        damage(&file);
        assert_eq!(host.node_record(&id).unwrap(), NodeRecord::default());
        let is_marked = host.is_marked_pool(id.pool(), "stamp").unwrap();
        assert!(!is_marked, "the doctor would take its device for an orphan");
        assert_eq!(std::fs::read_dir(&records).unwrap().count(), before + 1, "none is lost");
        assert!(host.node_records().unwrap().is_empty());
        assert_eq!(host.node_record(&id).unwrap(), NodeRecord::default(), "and once is enough");
    }
}
