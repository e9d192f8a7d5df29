use orlop_model::Host;
use orlop_sys::tool;

use super::super::testbed::{MIB, SMALL, Testbed, read_write};
use super::*;

const LARGER: u64 = SMALL + 128 * MIB;

#[test]
fn a_device_shows_what_was_made_on_it() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let device = bed.device("image", SMALL);
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
fn something_else_is_foreign() {
    let Some(bed) = Testbed::new() else { return };
    std::fs::write(bed.file("image"), vec![0x5a; 4 << 20]).unwrap();
    let device = bed.attach("image");
    let signature = bed.host().signature(&device).unwrap();
    assert_eq!(signature, DeviceSignature::Foreign);
}

#[test]
fn mkfs_says_why_it_refuses() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let device = bed.device("tiny", MIB);
    let uuid = host.random_uuid().unwrap();
    let error = host.format(&device, FsType::Xfs, uuid, &[]).unwrap_err();
    assert!(error.to_string().contains("mkfs.xfs"), "{error}");
}

#[test]
fn an_identity_that_differs_is_noticed() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let device = bed.device("image", SMALL);
    let uuid = host.random_uuid().unwrap();
    // The last -U counts: as if mkfs had ignored its arguments.
    let other = host.random_uuid().unwrap();
    let options = ["-U".to_owned(), other.to_string()];
    let error = host.format(&device, FsType::Ext4, uuid, &options).unwrap_err();
    assert!(error.to_string().contains(&uuid.to_string()), "{error}");
}

#[test]
fn ext4_with_errors_is_mended() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let device = bed.device("image", SMALL);
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
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    for fs in FsType::ALL {
        let original = bed.mounted(&host, fs, fs.as_str());
        std::fs::write(original.path.as_path().join("file"), "the same").unwrap();
        host.freeze(&original.path).unwrap();
        let name = format!("{fs}-copy");
        std::fs::copy(bed.file(&format!("{fs}.img")), bed.file(&name)).unwrap();
        assert!(host.ensure_thawed(&original.path).unwrap());

        let copy = bed.attach(&name);
        let uuid = host.random_uuid().unwrap();
        for _ in 0..2 {
            host.renew_uuid(&copy, fs, uuid).unwrap();
        }
        let path = bed.path("copy");
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
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    for fs in [FsType::Xfs, FsType::Btrfs] {
        let staged = bed.mounted(&host, fs, fs.as_str());
        let before = host.usage(&staged.path).unwrap().total_bytes;
        bed.grow(&format!("{fs}.img"), LARGER);
        assert_eq!(host.device_size(&staged.device).unwrap(), LARGER);
        for _ in 0..2 {
            host.ensure_grown_mounted(&staged.device, fs, &staged.path).unwrap();
        }
        let after = host.usage(&staged.path).unwrap().total_bytes;
        assert!(after >= before + 100 * MIB, "{fs}: {before} -> {after}");
    }
}

#[test]
fn a_power_cut_finds_a_grown_xfs_whole() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let staged = bed.mounted(&host, FsType::Xfs, "stage");
    for step in 1..=6 {
        bed.grow("stage.img", SMALL + step * 16 * MIB);
        host.ensure_grown_mounted(&staged.device, FsType::Xfs, &staged.path).unwrap();
        let written =
            fs::growth_is_written(staged.path.as_path(), &staged.device.path, FsKind::Xfs);
        assert!(written.unwrap(), "step {step}");
        // Each a growth upon growth that a log may still hold.
        let name = format!("cut-{step}");
        let copy = std::fs::File::create_new(bed.file(&name)).unwrap();
        let image = std::fs::File::open(bed.file("stage.img")).unwrap();
        orlop_sys::file::copy_sparse(&image, &copy).unwrap();
        let cut = bed.attach(&name);
        let path = bed.path("cut");
        host.ensure_mounted(&read_write(&cut, FsType::Xfs), &path).unwrap();
        host.ensure_unmounted(&path).unwrap();
    }
}

/// As a process leaves it that is killed between the growth and its way to the device.
#[test]
fn growth_that_is_only_in_the_log_is_written_by_the_next_call() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let staged = bed.mounted(&host, FsType::Xfs, "stage");
    let (mount_point, device) = (staged.path.as_path(), &staged.device.path);
    bed.grow("stage.img", LARGER);
    fs::grow_mounted(mount_point, device, FsKind::Xfs).unwrap();
    host.ensure_grown_mounted(&staged.device, FsType::Xfs, &staged.path).unwrap();
    assert!(fs::growth_is_written(mount_point, device, FsKind::Xfs).unwrap());
}

#[test]
fn a_mounted_ext4_grows_where_the_kernel_lets_it() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let staged = bed.mounted(&host, FsType::Ext4, "stage");
    let before = host.usage(&staged.path).unwrap().total_bytes;
    bed.grow("stage.img", LARGER);
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
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let staged = bed.mounted(&host, FsType::Ext4, "stage");
    let before = host.usage(&staged.path).unwrap().total_bytes;
    host.ensure_unmounted(&staged.path).unwrap();
    bed.grow("stage.img", LARGER);
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
fn only_the_volumes_own_filesystem_grows() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    let staged = bed.mounted(&host, FsType::Xfs, "stage");
    let stranger = bed.device("stranger", SMALL);
    std::fs::create_dir(bed.file("plain")).unwrap();
    for (device, at) in [(&stranger, &staged.path), (&staged.device, &bed.path("plain"))] {
        let refused = host.ensure_grown_mounted(device, FsType::Xfs, at);
        assert!(matches!(refused, Err(Error::Precondition(_))), "{at}");
    }
}

#[test]
fn trimming_shrinks_the_image() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    for fs in FsType::ALL {
        let staged = bed.mounted(&host, fs, fs.as_str());
        let image = bed.file(&format!("{fs}.img"));
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
fn trimming_is_refused_where_it_would_do_nothing_or_harm() {
    let Some(bed) = Testbed::new() else { return };
    let host = bed.host();
    std::fs::create_dir(bed.file("plain")).unwrap();
    let device = bed.device("raw", 8 * MIB);
    host.ensure_bound_device(&device, &bed.path("block")).unwrap();
    for name in ["plain", "missing", "block"] {
        let refused = host.ensure_trimmed(&bed.path(name));
        assert!(matches!(refused, Err(Error::Precondition(_))), "{name}: {refused:?}");
    }

    let staged = bed.mounted(&host, FsType::Ext4, "thick");
    let loop_device = orlop_sys::loopdev::LoopDevice::from_path(&staged.device.path).unwrap();
    orlop_sys::loopdev::disable_discard(&loop_device).unwrap();
    let refused = host.ensure_trimmed(&staged.path);
    assert!(matches!(refused, Err(Error::NotOffered("NodeReclaimSpace", _))), "{refused:?}");
}
