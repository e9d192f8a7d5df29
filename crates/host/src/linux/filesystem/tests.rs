use orlop_model::{HostDevices, HostFilesystems, HostFreezing, HostMounts};
use orlop_sys::tool;

use super::super::testbed::{MIB, SMALL, Testbed, read_write};
use super::*;

const LARGER: u64 = SMALL + 128 * MIB;

#[test]
fn signature_shows_the_filesystem() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let device = testbed.device("image", SMALL);
    assert_eq!(host.signature(&device).unwrap(), DeviceSignature::Blank);
    for fs in FsType::ALL {
        let uuid = host.random_uuid().unwrap();
        host.format(&device, fs, uuid, &[]).unwrap();
        let made = DeviceSignature::Filesystem { fs, uuid, needs_check: false };
        assert_eq!(host.signature(&device).unwrap(), made);
        host.check_filesystem(&device, fs).unwrap();
    }
}

#[test]
fn unknown_data_is_foreign() {
    let Some(testbed) = Testbed::new() else { return };
    std::fs::write(testbed.file("image"), vec![0x5a; 4 << 20]).unwrap();
    let device = testbed.attach("image");
    let signature = testbed.host().signature(&device).unwrap();
    assert_eq!(signature, DeviceSignature::Foreign);
}

#[test]
fn mkfs_failure_includes_its_reason() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let device = testbed.device("tiny", MIB);
    let uuid = host.random_uuid().unwrap();
    let error = host.format(&device, FsType::Xfs, uuid, &[]).unwrap_err();
    assert!(error.to_string().contains("mkfs.xfs"), "{error}");
}

#[test]
fn mkfs_with_another_uuid_is_detected() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let device = testbed.device("image", SMALL);
    let uuid = host.random_uuid().unwrap();
    // The last -U counts: as if mkfs had ignored the UUID.
    let other = host.random_uuid().unwrap();
    let options = ["-U".to_owned(), other.to_string()];
    let error = host.format(&device, FsType::Ext4, uuid, &options).unwrap_err();
    assert!(error.to_string().contains(&uuid.to_string()), "{error}");
}

#[test]
fn ext4_with_errors_is_repaired() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let device = testbed.device("image", SMALL);
    let uuid = host.random_uuid().unwrap();
    host.format(&device, FsType::Ext4, uuid, &[]).unwrap();
    let path = device.path.to_str().unwrap();
    tool::run("debugfs", ["-w", "-R", "set_super_value state 2", path]).unwrap();
    let signature =
        |needs_check| DeviceSignature::Filesystem { fs: FsType::Ext4, uuid, needs_check };
    assert_eq!(host.signature(&device).unwrap(), signature(true));
    host.check_filesystem(&device, FsType::Ext4).unwrap();
    assert_eq!(host.signature(&device).unwrap(), signature(false));
}

#[test]
fn a_copy_is_mounted_beside_its_original() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    for fs in FsType::ALL {
        let original = testbed.mounted(&host, fs, fs.as_str());
        std::fs::write(original.path.as_path().join("file"), "the same").unwrap();
        host.freeze(&original.path).unwrap();
        let name = format!("{fs}-copy");
        std::fs::copy(testbed.file(&format!("{fs}.img")), testbed.file(&name)).unwrap();
        assert!(host.ensure_thawed(&original.path).unwrap());

        let copy = testbed.attach(&name);
        let uuid = host.random_uuid().unwrap();
        for _ in 0..2 {
            host.renew_uuid(&copy, fs, uuid).unwrap();
        }
        let path = testbed.path("copy");
        host.ensure_mounted(&read_write(&copy, fs), &path).unwrap();
        let copied = std::fs::read_to_string(path.as_path().join("file")).unwrap();
        assert_eq!(copied, "the same", "{fs}");
        assert!(host.mount_at(&path).unwrap().unwrap().is_of(&copy), "{fs}");
        let there = host.mount_at(&original.path).unwrap().unwrap();
        assert!(there.is_of(&original.device), "{fs}");
        host.ensure_unmounted(&path).unwrap();
    }
}

#[test]
fn a_mounted_filesystem_grows_with_its_device() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    for fs in [FsType::Xfs, FsType::Btrfs] {
        let staged = testbed.mounted(&host, fs, fs.as_str());
        let before = host.usage(&staged.path).unwrap().total_bytes;
        testbed.grow(&format!("{fs}.img"), LARGER);
        assert_eq!(host.device_size(&staged.device).unwrap(), LARGER);
        for _ in 0..2 {
            host.ensure_grown_mounted(&staged.device, fs, &staged.path).unwrap();
        }
        let after = host.usage(&staged.path).unwrap().total_bytes;
        assert!(after >= before + 100 * MIB, "{fs}: {before} -> {after}");
    }
}

#[test]
fn grown_xfs_survives_a_power_cut() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Xfs, "stage");
    for step in 1..=6 {
        testbed.grow("stage.img", SMALL + step * 16 * MIB);
        host.ensure_grown_mounted(&staged.device, FsType::Xfs, &staged.path).unwrap();
        let written =
            fs::growth_is_written(staged.path.as_path(), &staged.device.path, FsKind::Xfs);
        assert!(written.unwrap(), "step {step}");
        // Each a growth upon growth that a log may still hold.
        let name = format!("cut-{step}");
        let copy = std::fs::File::create_new(testbed.file(&name)).unwrap();
        let image = std::fs::File::open(testbed.file("stage.img")).unwrap();
        orlop_sys::file::copy_sparse(&image, &copy).unwrap();
        let cut = testbed.attach(&name);
        let path = testbed.path("cut");
        host.ensure_mounted(&read_write(&cut, FsType::Xfs), &path).unwrap();
        host.ensure_unmounted(&path).unwrap();
    }
}

/// As a process leaves it that is killed between the growth and its way to the device.
#[test]
fn growth_in_the_log_is_written_by_the_next_call() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Xfs, "stage");
    let (mount_point, device) = (staged.path.as_path(), &staged.device.path);
    testbed.grow("stage.img", LARGER);
    fs::grow_mounted(mount_point, device, FsKind::Xfs).unwrap();
    host.ensure_grown_mounted(&staged.device, FsType::Xfs, &staged.path).unwrap();
    assert!(fs::growth_is_written(mount_point, device, FsKind::Xfs).unwrap());
}

#[test]
fn mounted_ext4_grows_if_permitted() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Ext4, "stage");
    let before = host.usage(&staged.path).unwrap().total_bytes;
    testbed.grow("stage.img", LARGER);
    let grown = host.ensure_grown_mounted(&staged.device, FsType::Ext4, &staged.path);
    if has_cap_sys_resource() {
        grown.unwrap();
        assert!(host.usage(&staged.path).unwrap().total_bytes > before);
        return;
    }
    match grown {
        Err(Error::Precondition(text)) => {
            assert!(text.as_str().contains("CAP_SYS_RESOURCE"), "{text}")
        }
        other => panic!("should be refused: {other:?}"),
    }
}

fn has_cap_sys_resource() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let effective = u64::from_str_radix(effective.trim(), 16).unwrap();
    effective & (1 << CAP_SYS_RESOURCE) != 0
}

#[test]
fn ext4_grows_before_it_is_mounted() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Ext4, "stage");
    let before = host.usage(&staged.path).unwrap().total_bytes;
    host.ensure_unmounted(&staged.path).unwrap();
    testbed.grow("stage.img", LARGER);
    // resize2fs refuses what was mounted in a later second than it was made or checked in.
    host.check_before_growth(&staged.device, FsType::Ext4).unwrap();
    for _ in 0..2 {
        host.ensure_grown_unmounted(&staged.device, FsType::Ext4).unwrap();
    }
    host.ensure_mounted(&read_write(&staged.device, FsType::Ext4), &staged.path).unwrap();
    let after = host.usage(&staged.path).unwrap().total_bytes;
    assert!(after >= before + 100 * MIB, "{before} -> {after}");
    // It fills its device, so nothing is left for the kernel to refuse.
    host.ensure_grown_mounted(&staged.device, FsType::Ext4, &staged.path).unwrap();
}

#[test]
fn only_the_mount_of_the_device_grows() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let staged = testbed.mounted(&host, FsType::Xfs, "stage");
    let stranger = testbed.device("stranger", SMALL);
    std::fs::create_dir(testbed.file("plain")).unwrap();
    for (device, at) in [(&stranger, &staged.path), (&staged.device, &testbed.path("plain"))] {
        let refused = host.ensure_grown_mounted(device, FsType::Xfs, at);
        assert!(matches!(refused, Err(Error::Precondition(_))), "{at}");
    }
}

#[test]
fn trimming_shrinks_the_image() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    for fs in FsType::ALL {
        let staged = testbed.mounted(&host, fs, fs.as_str());
        let image = testbed.file(&format!("{fs}.img"));
        let file = staged.path.as_path().join("file");
        std::fs::write(&file, vec![7; 64 << 20]).unwrap();
        host.sync_filesystem(&staged.path).unwrap();
        let full = orlop_sys::file::allocated_bytes(&image).unwrap();
        assert!(full >= 64 * MIB, "{fs}: written back");
        std::fs::write(&file, "").unwrap();
        host.sync_filesystem(&staged.path).unwrap();
        host.ensure_trimmed(&staged.path).unwrap();
        let trimmed = orlop_sys::file::allocated_bytes(&image).unwrap();
        assert!(trimmed + 60 * MIB < full, "{fs}: {full} {trimmed}");
        host.ensure_trimmed(&staged.path).unwrap();
    }
}

#[test]
fn trim_is_refused_where_useless_or_harmful() {
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    std::fs::create_dir(testbed.file("plain")).unwrap();
    let device = testbed.device("raw", 8 * MIB);
    host.ensure_bound_device(&device, &testbed.path("block")).unwrap();
    for name in ["plain", "missing", "block"] {
        let refused = host.ensure_trimmed(&testbed.path(name));
        assert!(matches!(refused, Err(Error::Precondition(_))), "{name}: {refused:?}");
    }

    let staged = testbed.mounted(&host, FsType::Ext4, "thick");
    let loop_device = orlop_sys::loopdev::LoopDevice::from_path(&staged.device.path).unwrap();
    orlop_sys::loopdev::disable_discard(&loop_device).unwrap();
    let refused = host.ensure_trimmed(&staged.path);
    assert!(matches!(refused, Err(Error::NotOffered("NodeReclaimSpace", _))), "{refused:?}");
}
