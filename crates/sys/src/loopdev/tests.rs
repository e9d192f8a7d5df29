#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Barrier;

use rustix::mount::{UnmountFlags, unmount};

use super::*;
use crate::file::allocated_bytes;
use crate::filesystem::FsKind;
use crate::testbed::{Disk, MIB, Volume, answered, root, scratch, until_detached};
use crate::tool;

fn queue_limit(device: &LoopDevice, name: &str) -> u64 {
    let path = device.sysfs().join("queue").join(name);
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

#[test]
fn only_device_nodes_are_named() {
    let device = |path: &str| LoopDevice::from_path(Path::new(path));
    assert_eq!(device("/dev/loop12"), Some(LoopDevice { number: 12 }));
    for other in ["/dev/loop", "/dev/loop-control", "/dev/loop01", "/dev/loop1p1", "/dev/sda"] {
        assert_eq!(device(other), None, "{other}");
    }
    assert_eq!(device("/tmp/loop1"), None);
    assert_eq!(LoopDevice { number: 3 }.path(), Path::new("/dev/loop3"));
}

#[test]
fn an_attached_file_is_described_found_and_detached() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), 16 * MIB);
    let file = std::fs::metadata(&disk.image).unwrap();
    let expected = LoopStatus {
        device: disk.device.clone(),
        backing_device: file.dev(),
        backing_inode: file.ino(),
        label: disk.label.clone(),
        offset: 0,
        read_only: false,
        direct_io: true,
        detaching: false,
    };
    assert_eq!(status(&disk.device).unwrap(), Some(expected.clone()));
    let all = attached(|file| file.file_name() == disk.image.file_name()).unwrap();
    assert!(all.contains(&expected));
    assert_eq!(find(&disk.image, false).unwrap(), Some(disk.device.clone()));
    assert_eq!(find(&disk.image, true).unwrap(), None);
    assert_eq!(queue_limit(&disk.device, "logical_block_size"), 4096);
    assert_eq!(size(&disk.path()).unwrap(), 16 * MIB);
    assert_eq!(disk.device.device_number().unwrap().0, 7);

    ensure_detached(&disk.device, &disk.label).unwrap();
    assert_eq!(find(&disk.image, false).unwrap(), None);
    ensure_detached(&disk.device, &disk.label).unwrap();
}

/// The caller holds the lock of a volume, and the kernel would wait 45 seconds.
#[test]
fn a_lease_of_another_program_is_not_waited_for() {
    let dir = scratch();
    let image = dir.path().join("image");
    std::fs::write(&image, vec![1; 1 << 20]).unwrap();
    let holder = File::open(&image).unwrap();
    abi::take_lease(&holder, abi::Lease::Read).unwrap();
    let leased = image.clone();
    let refused = answered(move || {
        attach(&leased, &AttachOptions { label: "orlop-test", read_only: false, size: MIB })
    });
    assert_eq!(refused.unwrap_err().leased_file(), Some(image.as_path()));
}

#[test]
fn paths_are_alike_by_their_directory_and_name() {
    let alike = |a: &str, b: &str| ends_alike(Path::new(a), Path::new(b));
    assert!(alike("/pool/volumes/v-1/data", "/link/to/volumes/v-1/data"));
    assert!(alike("/v-1/data", "/pool/volumes/v-1/data"));
    assert!(!alike("/pool/volumes/v-2/data", "/pool/volumes/v-1/data"));
    assert!(!alike("/pool/volumes/v-1/other", "/pool/volumes/v-1/data"));
    for nameless in ["", "/", "/data", "data"] {
        assert!(!alike(nameless, ""), "{nameless}");
        assert!(!alike(nameless, "/pool/volumes/v-1/data"), "{nameless}");
    }
}

#[test]
fn a_read_only_device_takes_no_data() {
    if !root() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("image");
    std::fs::write(&image, vec![1; 1 << 20]).unwrap();
    let disk = Disk::attach(&image, true);
    assert!(status(&disk.device).unwrap().unwrap().read_only);
    let written = OpenOptions::new().write(true).open(disk.path()).and_then(|mut device| {
        device.write_all(&[2; 4096])?;
        device.sync_all()
    });
    assert!(written.is_err());
    assert_eq!(std::fs::read(disk.path()).unwrap(), vec![1; 1 << 20]);
    drop(disk);

    let again = Disk::attach(&image, false);
    std::fs::write(again.path(), vec![2; 4096]).unwrap();
    assert!(!status(&again.device).unwrap().unwrap().read_only);
}

#[test]
fn attaching_at_once_gives_different_devices() {
    if !root() {
        return;
    }
    let dir = scratch();
    let start = Barrier::new(8);
    let disks: Vec<Disk> = std::thread::scope(|scope| {
        let attach = || {
            start.wait();
            Disk::new(dir.path(), MIB)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(attach)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let devices: HashSet<PathBuf> = disks.iter().map(Disk::path).collect();
    assert_eq!(devices.len(), 8);
    for disk in &disks {
        assert_eq!(find(&disk.image, false).unwrap().as_ref(), Some(&disk.device));
    }
}

#[test]
fn device_with_another_label_is_left_alone() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), MIB);
    ensure_detached(&disk.device, "another label").unwrap();
    assert_eq!(status(&disk.device).unwrap().unwrap().label, disk.label);
}

#[test]
fn device_in_use_is_busy_until_closed() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), MIB);
    let user = File::open(disk.path()).unwrap();
    assert!(ensure_detached(&disk.device, &disk.label).unwrap_err().is_busy());
    assert!(status(&disk.device).unwrap().unwrap().detaching);
    let named = user_of(&disk.device).unwrap();
    assert!(named.contains("has it open"), "{named}");
    drop(user);
    until_detached(&disk.device, || ensure_detached(&disk.device, &disk.label)).unwrap();
    assert_eq!(find(&disk.image, false).unwrap(), None);
}

/// As at the end of an unmount, when the filesystem is still there and no process is seen to use it.
#[test]
fn device_without_a_visible_user_is_waited_for() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    // The kernel alone has a file open in it.
    let kept = Disk::new(volume.root(), MIB);
    unmount(volume.root(), UnmountFlags::DETACH).unwrap();
    // But for programs that look at all devices.
    while let Some(user) = user_of(&volume.disk.device) {
        assert!(!user.contains("mounted"), "{user}");
    }
    let written = OpenOptions::new().write(true).open(kept.path()).unwrap();
    std::thread::scope(|scope| {
        let detaching = scope.spawn(|| ensure_detached(&volume.disk.device, &volume.disk.label));
        let until = Instant::now() + 2 * DETACH_TIMEOUT;
        while Instant::now() < until {
            written.write_all_at(&[1; 4096], 0).unwrap();
            written.sync_all().unwrap();
        }
        drop((written, kept));
        let detached = detaching.join().unwrap();
        assert!(detached.is_ok(), "{detached:?}: {:?}", user_of(&volume.disk.device));
    });
}

/// As one that a process keeps which may not be looked at.
#[test]
fn idle_device_held_by_the_kernel_is_busy() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Ext4);
    let kept = Disk::new(volume.root(), MIB);
    unmount(volume.root(), UnmountFlags::DETACH).unwrap();
    let refused = ensure_detached(&volume.disk.device, &volume.disk.label).unwrap_err();
    assert!(refused.is_busy(), "{refused}");
    drop(kept);
    let ensure_detached = || ensure_detached(&volume.disk.device, &volume.disk.label);
    until_detached(&volume.disk.device, ensure_detached).unwrap();
}

#[test]
fn brief_opens_are_not_lasting_use() {
    let mut sightings = Sightings::default();
    let uses = [true, true, false, true, false, true, true];
    assert!(!uses.into_iter().any(|in_use| sightings.is_lasting(in_use)));
    assert!(sightings.is_lasting(true));
}

#[test]
fn unattachable_file_is_refused() {
    if !root() {
        return;
    }
    let dir = scratch();
    let options = AttachOptions { label: "x", read_only: false, size: 4096 };
    assert!(attach(&dir.path().join("missing"), &options).unwrap_err().is_not_found());

    let image = dir.path().join("image");
    std::fs::write(&image, [0; 4096]).unwrap();
    let long = "x".repeat(64);
    assert!(attach(&image, &AttachOptions { label: &long, ..options }).is_err());
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&image, &link).unwrap();
    assert_eq!(attach(&link, &options).unwrap_err().errno(), Some(Errno::LOOP));
    assert_eq!(find(&image, false).unwrap(), None);
}

#[test]
fn a_longer_file_makes_a_larger_device() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), 4 * MIB);
    disk.grow(12 * MIB);
    assert_eq!(size(&disk.path()).unwrap(), 12 * MIB);
}

#[test]
fn device_size_never_exceeds_the_limit() {
    if !root() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("image");
    File::create_new(&image).unwrap().set_len(12 * MIB).unwrap();
    let disk = Disk::attach_part(&image, 4 * MIB);
    assert_eq!(size(&disk.path()).unwrap(), 4 * MIB);
    let user = File::open(disk.path()).unwrap();
    for shown in [4, 8, 12] {
        refresh_size(&disk.device, &image, shown * MIB).unwrap();
        assert_eq!(size(&disk.path()).unwrap(), shown * MIB);
    }
    // Without a limit again: it follows its file, and only when it is refreshed.
    OpenOptions::new().write(true).open(&image).unwrap().set_len(16 * MIB).unwrap();
    refresh_size(&disk.device, &image, 12 * MIB).unwrap();
    assert_eq!(size(&disk.path()).unwrap(), 12 * MIB);
    refresh_size(&disk.device, &image, 16 * MIB).unwrap();
    assert_eq!(size(&disk.path()).unwrap(), 16 * MIB);
    assert_eq!(status(&disk.device).unwrap().unwrap().label, disk.label);
    drop(user);
}

#[test]
fn missing_device_has_no_status() {
    assert_eq!(status(&LoopDevice { number: 1_000_000 }).unwrap(), None);
}

#[test]
fn discards_free_the_image_unless_disabled() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), 16 * MIB);
    std::fs::write(disk.path(), vec![5; 16 << 20]).unwrap();
    crate::file::sync_device(&disk.path()).unwrap();
    assert!(allocated_bytes(&disk.image).unwrap() >= 16 * MIB);

    disable_discard(&disk.device).unwrap();
    assert!(tool::run("blkdiscard", [disk.path()]).is_err());
    assert!(allocated_bytes(&disk.image).unwrap() >= 16 * MIB);

    let image = disk.image.clone();
    let poisoned = disk.device.clone();
    drop(disk);
    // Another test may have it again by now, but then as a new device.
    assert!(!discard::is_disabled(&poisoned).unwrap_or(false));

    let again = Disk::attach(&image, false);
    tool::run("blkdiscard", [again.path()]).unwrap();
    assert!(allocated_bytes(&image).unwrap() < MIB);
}

/// As soon as it is free, another caller takes the number, for a file with the same label.
fn take_number(device: &LoopDevice, image: &Path, label: &str) {
    let options = AttachOptions { label, read_only: false, size: MIB };
    let info = loop_info(image, &options).unwrap();
    let file = File::options().read(true).write(true).open(image).unwrap();
    while device
        .open(OFlags::RDWR)
        .and_then(|fd| abi::loop_configure(fd, file.as_fd(), SECTOR, info))
        .is_err()
    {
        std::hint::spin_loop();
    }
}

#[test]
fn detach_spares_the_next_file_with_this_number() {
    if !root() {
        return;
    }
    let dir = scratch();
    for attempt in 0..300 {
        let image = dir.path().join(format!("next{attempt}"));
        File::create_new(&image).unwrap().set_len(MIB).unwrap();
        let disk = Disk::new(dir.path(), MIB);
        std::thread::scope(|scope| {
            scope.spawn(|| take_number(&disk.device, &image, &disk.label));
            ensure_detached(&disk.device, &disk.label).unwrap();
        });
        assert_eq!(backing(&disk.device).unwrap().unwrap().file, image, "attempt {attempt}");
    }
}

#[test]
fn device_without_discards_is_not_reused() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disks: Vec<Disk> = (0..3).map(|_| Disk::new(dir.path(), MIB)).collect();
    for disk in disks {
        disable_discard(&disk.device).unwrap();
        // As losetup does it, without the care of ensure_detached.
        abi::loop_clear(disk.device.open(OFlags::RDONLY).unwrap()).unwrap();
        std::mem::forget(disk);
    }
    let disks: Vec<Disk> = (0..3).map(|_| Disk::new(dir.path(), MIB)).collect();
    for disk in &disks {
        assert!(!discard::is_disabled(&disk.device).unwrap());
    }
}

#[test]
fn writes_are_counted_and_reads_are_not() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), 16 * MIB);
    let (major, minor) = disk.device.device_number().unwrap();
    let count = || writes(major, minor).unwrap().unwrap();
    let device = OpenOptions::new().read(true).write(true).open(disk.path()).unwrap();
    let before = count();
    std::os::unix::fs::FileExt::read_exact_at(&device, &mut [0; 4096], 0).unwrap();
    assert_eq!(count(), before);
    std::os::unix::fs::FileExt::write_all_at(&device, &[1; 4096], 0).unwrap();
    device.sync_all().unwrap();
    assert!(count() > before);
}

#[test]
fn a_device_is_known_and_detached_by_its_file() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disk = Disk::new(dir.path(), 16 * MIB);
    let file = disk.image.canonicalize().unwrap();
    let there = BackedDevice {
        device: disk.device.clone(),
        file: file.clone(),
        read_only: false,
        detaching: false,
    };
    assert_eq!(backing(&disk.device).unwrap(), Some(there.clone()));
    assert!(all_backed().unwrap().contains(&there));
    ensure_detached_from(&disk.device, &dir.path().join("another")).unwrap();
    assert_eq!(backing(&disk.device).unwrap(), Some(there));
    ensure_detached_from(&disk.device, &file).unwrap();
    assert!(backing(&disk.device).unwrap().is_none_or(|now| now.file != file));
}

/// Whatever it is used for: it must not keep others from their devices.
#[test]
fn device_on_a_shut_down_filesystem_is_skipped() {
    if !root() {
        return;
    }
    let volume = Volume::new(FsKind::Xfs);
    let disk = Disk::new(volume.root(), MIB);
    tool::run("xfs_io", ["-x", "-c", "shutdown", volume.root().to_str().unwrap()]).unwrap();
    assert_eq!(status(&disk.device).unwrap_err().errno(), Some(Errno::IO));
    let found = attached(|_| false);
    let file = disk.image.canonicalize().unwrap_or_else(|_| disk.image.clone());
    ensure_detached_from(&disk.device, &file).unwrap();
    let device = disk.device.clone();
    // It would ask for its status.
    std::mem::forget(disk);
    assert!(found.unwrap().iter().all(|entry| entry.device != device));
}
