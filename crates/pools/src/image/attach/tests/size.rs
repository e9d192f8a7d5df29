//! A device is as long as its volume's record says, and gives back what is discarded.

use orlop_sys::file::allocated_bytes;

use super::*;

#[test]
fn a_device_grows_with_its_volume() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        let refused = pool.devices().refresh_device(&record.id);
        assert!(matches!(refused, Err(Error::Precondition(_))));
        let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
        let user = File::open(&device.path).unwrap();
        pool.provisioner().ensure_capacity(&record.id, 24 * MIB).unwrap();
        assert_eq!(pool.devices().refresh_device(&record.id).unwrap(), 24 * MIB);
        assert_eq!(loopdev::size(&device.path).unwrap(), 24 * MIB);
        drop(user);
    }
}

/// Its record was restored from before an expansion, while a workload uses all of it.
#[test]
fn a_device_in_use_is_not_cut_to_an_older_record() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        pool.provisioner().ensure_capacity(&record.id, 32 * MIB).unwrap();
        let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
        let mut restore = |record: &mut VolumeRecord| {
            record.capacity_bytes = 16 * MIB;
            Ok(())
        };
        pool.catalogue().update_volume(&record.id, &mut restore).unwrap();
        for recorded in [16 * MIB, 24 * MIB] {
            pool.provisioner().ensure_capacity(&record.id, recorded).unwrap();
            let refused = pool.devices().refresh_device(&record.id);
            let Err(Error::Precondition(reason)) = &refused else { panic!("{refused:?}") };
            assert!(reason.as_str().contains("to 33554432 bytes"), "{reason}");
            assert_eq!(loopdev::size(&device.path).unwrap(), 32 * MIB);
        }
        pool.provisioner().ensure_capacity(&record.id, 32 * MIB).unwrap();
        assert_eq!(pool.devices().refresh_device(&record.id).unwrap(), 32 * MIB);
    }
}

fn allocated_after_discard(pool: &ImagePool, record: &VolumeRecord) -> u64 {
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    write_through(&device, 1, 16 * MIB);
    let before = allocated_bytes(&data_of(pool, &record.id)).unwrap();
    assert!(before >= 16 * MIB);
    // Refused for a thick volume, which is as good as ignored.
    let _ = orlop_sys::tool::run("blkdiscard", ["-f".as_ref(), device.path.as_os_str()]);
    let data = File::open(data_of(pool, &record.id)).unwrap();
    data.sync_all().unwrap();
    allocated_bytes(&data_of(pool, &record.id)).unwrap()
}

#[test]
fn discards_shrink_a_thin_volume_and_never_a_thick_one() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let thin = create(&pool, &volume_of(&pool, "thin", 16 * MIB));
        assert!(allocated_after_discard(&pool, &thin) < MIB);
        let thick = create(&pool, &thick_volume_of(&pool, "thick", 16 * MIB));
        assert!(allocated_after_discard(&pool, &thick) >= 16 * MIB);
    }
}

/// A volume with a filesystem in use, taken down also by a panic.
struct InUse {
    point: std::path::PathBuf,
}

impl InUse {
    fn mount(testbed: &Testbed, device: &Device) -> Self {
        let kind = orlop_sys::filesystem::FsKind::Xfs;
        let point = testbed.pool_path().with_extension("volume");
        orlop_sys::mounts::ensure_directory(&point).unwrap();
        let options = ["nouuid".to_owned()];
        let mount = orlop_sys::mounts::FsMount {
            device: &device.path,
            fs_type: kind.as_str(),
            options: &options,
            read_only: false,
        };
        orlop_sys::mounts::mount_filesystem(&mount, &point).unwrap();
        Self { point }
    }

    fn grow(&self, device: &Device) -> u64 {
        let kind = orlop_sys::filesystem::FsKind::Xfs;
        orlop_sys::filesystem::grow_mounted(&self.point, &device.path, kind).unwrap();
        orlop_sys::file::space(&self.point).unwrap().total
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let unmounted = until_unmounted(&self.point);
        assert!(unmounted.is_ok() || std::thread::panicking(), "{unmounted:?}");
    }
}

#[test]
fn a_mounted_volume_grows_to_its_record_and_no_further() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 320 * MIB));
    // As a crash leaves it between the data and the record of an expansion.
    let longer = File::options().write(true).open(data_of(&pool, &record.id)).unwrap();
    orlop_sys::file::set_length(&longer, 480 * MIB).unwrap();
    drop(longer);

    for attached_before in [false, true] {
        let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
        if !attached_before {
            let format = orlop_sys::filesystem::Format {
                kind: orlop_sys::filesystem::FsKind::Xfs,
                uuid: orlop_sys::rand::random_bytes().unwrap(),
                extra_options: &[],
            };
            orlop_sys::filesystem::format(&device.path, &format).unwrap();
        }
        let in_use = InUse::mount(&testbed, &device);
        let shown = pool.catalogue().volume(&record.id).unwrap().unwrap().capacity_bytes;
        assert_eq!(pool.devices().refresh_device(&record.id).unwrap(), shown);
        let before = in_use.grow(&device);
        assert!(before <= shown, "{before} {shown}");
        let larger = shown + 80 * MIB;
        pool.provisioner().ensure_capacity(&record.id, larger).unwrap();
        assert_eq!(pool.devices().refresh_device(&record.id).unwrap(), larger);
        let after = in_use.grow(&device);
        assert!(after >= before + 72 * MIB && after <= larger, "{before} {after}");
    }
}

#[test]
fn a_read_only_device_shows_the_record_too() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let longer = File::options().write(true).open(data_of(&pool, &record.id)).unwrap();
    orlop_sys::file::set_length(&longer, 32 * MIB).unwrap();
    drop(longer);
    let device = pool.devices().ensure_attached(&record.id, RO).unwrap();
    assert_eq!(loopdev::size(&device.path).unwrap(), 16 * MIB);
}
