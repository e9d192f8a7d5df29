//! Space that volumes give back.

use orlop_model::{DeviceAccess, Devices};

use super::*;

/// Bytes of the thin pool's data that are taken.
fn taken(pool: &Pool) -> u64 {
    pool.opened.capacity.forget_numbers();
    let space = pool.provisioner().space().unwrap();
    space.size.unwrap() - space.free.unwrap()
}

fn fill(pool: &Pool, id: &VolumeId, byte: u8, bytes: u64) {
    let device = File::options().write(true).open(pool.attach(id)).unwrap();
    for offset in (0..bytes).step_by(1 << 20) {
        device.write_all_at(&[byte; 1 << 20], offset).unwrap();
    }
    device.sync_all().unwrap();
}

#[test]
fn zeroes_are_given_back_and_data_stays() {
    let Some(pool) = Pool::new(128 * MIB) else { return };
    let volume = pool.create("a", 40 * MIB);
    fill(&pool, &volume.id, 0, 32 * MIB);
    pool.write(&volume.id, 7);
    assert!(taken(&pool) >= 32 * MIB);
    assert!(pool.provisioner().used_bytes(&volume.id).unwrap() >= 32 * MIB);
    let attached = pool.provisioner().ensure_reclaimed(&volume.id);
    assert!(matches!(attached, Err(Error::Precondition(_))), "{attached:?}");
    pool.detach(&volume.id);

    // As the engine does: what it takes is known before and after.
    assert!(pool.provisioner().used_bytes(&volume.id).unwrap() >= 32 * MIB);
    pool.provisioner().ensure_reclaimed(&volume.id).unwrap();
    assert!(pool.provisioner().used_bytes(&volume.id).unwrap() <= MIB);
    assert!(taken(&pool) <= MIB, "{}", taken(&pool));
    let report = pool.opened.lvm.report().unwrap();
    assert!(!report.lv(&volume.id.to_string()).unwrap().is_active());
    assert_eq!(pool.read(&volume.id), 7);
}

#[test]
fn files_that_are_deleted_and_trimmed_are_given_back() {
    let Some(pool) = Pool::new(128 * MIB) else { return };
    let volume = pool.create("a", 96 * MIB);
    // mkfs discards what it finds.
    fill(&pool, &volume.id, 1, 64 * MIB);
    let device = pool.attach(&volume.id).display().to_string();
    tool::run("mkfs.ext4", ["-q", &device]).unwrap();
    assert!(taken(&pool) < 32 * MIB, "{}", taken(&pool));

    let directory = tempfile::tempdir().unwrap();
    let point = directory.path().display().to_string();
    tool::run("mount", [&device, &point]).unwrap();
    let file = directory.path().join("large");
    std::fs::write(&file, vec![1; 48 << 20]).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    let full = taken(&pool);
    assert!(full >= 48 * MIB);
    std::fs::remove_file(&file).unwrap();
    tool::run("sync", [""; 0]).unwrap();
    tool::run("fstrim", [&point]).unwrap();
    let trimmed = taken(&pool);
    tool::run("umount", [&point]).unwrap();
    assert!(trimmed + 40 * MIB < full, "{trimmed} of {full}");
}

#[test]
fn many_volumes_are_measured_by_one_report() {
    let Some(pool) = Pool::new(64 * MIB) else { return };
    let (used, unused) = (pool.create("a", 8 * MIB), pool.create("b", 8 * MIB));
    pool.write(&used.id, 1);
    pool.attach(&unused.id);
    let ids = [used.id.clone(), unused.id.clone(), pool.volume_id("none")];
    let found = pool.provisioner().used_bytes_of(&ids);
    assert!(*found[0].as_ref().unwrap() >= 4096);
    assert_eq!(found[1], Ok(0));
    assert!(matches!(found[2], Err(Error::NoSuchVolume(_))), "{found:?}");
    pool.provisioner().check_takes(&used.id, 60 * MIB).unwrap();
    let refused = pool.provisioner().check_takes(&used.id, 64 * MIB);
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    let detached = pool.opened.devices.ensure_detached(&used.id, DeviceAccess::ReadWrite);
    detached.unwrap();
}
