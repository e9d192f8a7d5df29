use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_model::{DeviceAccess, Error, Pool, SnapshotRecord, VolumeRecord};

use crate::image::ImagePool;
use crate::image::testbed::by_hand::{Bound, ByHand};
use crate::image::testbed::*;

#[test]
fn deleted_objects_are_gone_and_their_space_free() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 64 * MIB));
        scribble(&data_of(&pool, &record.id), 1, 8 * MIB);
        let taken = snapshot(&pool, "s", &record);
        for _ in 0..2 {
            pool.provisioner().ensure_no_volume(&record.id).unwrap();
            pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
        }
        assert_eq!(pool.catalogue().volume(&record.id).unwrap(), None);
        assert_eq!(pool.catalogue().snapshot(&taken.id).unwrap(), None);
        for directory in ["volumes", "snapshots", "trash", "staging"] {
            assert!(listing(&testbed, directory).is_empty(), "{directory}");
        }
        drop(pool);
        let pool = testbed.open();
        assert!(pool.catalogue().volumes(None, 0).unwrap().is_empty());
        create(&pool, &volume_of(&pool, "a", 64 * MIB));
    }
}

#[test]
fn damaged_object_is_neither_deleted_nor_overwritten() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let new = volume_of(&pool, "a", 64 * MIB);
        let record = create(&pool, &new);
        let taken = snapshot(&pool, "s", &record);
        let volume = pool.catalogue.volume_index().directory_of(&record.id);
        let snapshot = pool.catalogue.snapshot_index().directory_of(&taken.id);
        drop(pool);
        fs::write(volume.record(), "{").unwrap();
        fs::write(snapshot.record(), "{").unwrap();

        let pool = testbed.open();
        let damaged = |error: Option<Error>| match error {
            Some(Error::Damaged { reason, .. }) => reason,
            other => panic!("not damaged: {other:?}"),
        };
        let reason = damaged(pool.provisioner().ensure_no_volume(&record.id).err());
        assert!(reason.contains(&volume.directory().display().to_string()));
        damaged(pool.catalogue().volume(&record.id).err());
        damaged(pool.provisioner().begin_volume(&new).err());
        damaged(pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).err());
        damaged(pool.provisioner().ensure_capacity(&record.id, 65 * MIB).err());
        damaged(pool.catalogue().update_volume(&record.id, &mut |_| Ok(())).err());
        damaged(pool.provisioner().ensure_no_snapshot(&taken.id).err());
        damaged(pool.provisioner().begin_snapshot(&snapshot_of(&pool, "s", &record)).err());
        assert!(pool.health().condition(&record.id).unwrap().is_abnormal());
        assert_eq!(pool.catalogue().volumes(None, 0).unwrap().len(), 1);
        assert!(pool.catalogue().volumes(None, 0).unwrap()[0].1.is_err());
        assert!(pool.catalogue().snapshots(None, 0).unwrap().is_empty());
        assert_eq!(fs::read_to_string(volume.record()).unwrap(), "{");
        assert_eq!(fs::metadata(volume.data()).unwrap().len(), 64 * MIB);
    }
}

#[test]
fn externally_removed_object_is_forgotten() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 64 * MIB));
    let home = pool.catalogue.volume_index().directory_of(&record.id);
    orlop_sys::file::remove_tree(home.directory()).unwrap();
    assert!(pool.health().condition(&record.id).unwrap().is_abnormal());
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), None);
}

#[test]
fn volume_in_use_is_not_deleted() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 64 * MIB));
    let access = DeviceAccess::ReadWrite;
    let device = pool.devices().ensure_attached(&record.id, access).unwrap();
    let user = fs::File::open(&device.path).unwrap();
    let refused = pool.provisioner().ensure_no_volume(&record.id);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    assert!(pool.catalogue().volume(&record.id).unwrap().is_some());
    drop(user);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    assert!(devices_of_pool_at(&testbed.pool_path()).is_empty());
}

#[test]
fn delete_fails_while_the_pool_is_absent() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 64 * MIB));
    let unknown = volume_id(&pool, "unknown");
    let taken = snapshot(&pool, "s", &record);
    let elsewhere = testbed.pool_path().with_extension("moved");
    fs::rename(testbed.pool_path(), &elsewhere).unwrap();
    // With and without an empty directory in its place, as below an unmounted filesystem.
    for _ in 0..2 {
        let away = |error: Option<Error>| match error {
            Some(Error::Unreachable { reason, .. }) => {
                assert!(reason.as_str().contains("gone"), "{reason}")
            }
            other => panic!("{other:?}"),
        };
        away(pool.provisioner().ensure_no_volume(&record.id).err());
        away(pool.provisioner().ensure_no_volume(&unknown).err());
        away(pool.provisioner().ensure_no_snapshot(&taken.id).err());
        away(pool.provisioner().begin_volume(&volume_of(&pool, "b", MIB)).err());
        away(pool.provisioner().begin_snapshot(&snapshot_of(&pool, "t", &record)).err());
        away(pool.catalogue().update_volume(&record.id, &mut |_| Ok(())).err());
        away(pool.provisioner().ensure_capacity(&record.id, 65 * MIB).err());
        away(pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).err());
        away(pool.provisioner().capacity(orlop_model::Provisioning::Thin).err());
        assert!(pool.health().condition(&record.id).unwrap().message().contains("gone"));
        fs::create_dir_all(testbed.pool_path().join("volumes")).unwrap();
    }
    orlop_sys::file::remove_tree(&testbed.pool_path()).unwrap();
    fs::rename(&elsewhere, testbed.pool_path()).unwrap();
    assert_eq!(pool.catalogue().volume(&record.id).unwrap().as_ref(), Some(&record));
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
}

const BYTES: u64 = 16 * MIB;

/// A volume and a snapshot of it, with data, and the paths of both.
fn volume_with_snapshot(pool: &ImagePool) -> (VolumeRecord, SnapshotRecord, [PathBuf; 2]) {
    let record = create(pool, &volume_of(pool, "a", BYTES));
    scribble(&data_of(pool, &record.id), 1, MIB);
    let taken = snapshot(pool, "s", &record);
    let data = [data_of(pool, &record.id), snapshot_data_of(pool, &taken.id)];
    (record, taken, data)
}

fn delete_both(pool: &ImagePool, record: &VolumeRecord, taken: &SnapshotRecord) {
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
}

/// In the directory of the pool, which on btrfs is a subvolume.
fn other_file(testbed: &Testbed, data: &Path, name: &str) -> PathBuf {
    let kind = data.ancestors().nth(2).unwrap().file_name().unwrap().to_str().unwrap();
    testbed.pool_path().join(format!("{kind}-{name}"))
}

#[test]
fn what_has_another_name_keeps_its_data() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let (record, taken, data) = volume_with_snapshot(&pool);
        let before = read(&data[0]);
        let kept = data.each_ref().map(|data| other_file(&testbed, data, "kept"));
        for (data, kept) in data.iter().zip(&kept) {
            fs::hard_link(data, kept).unwrap();
        }
        delete_both(&pool, &record, &taken);
        for kept in &kept {
            assert!(read(kept) == before, "{}", kept.display());
        }
    }
}

#[test]
fn a_file_that_a_link_leads_to_keeps_its_data() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let (record, taken, data) = volume_with_snapshot(&pool);
        let before = read(&data[0]);
        let moved = data.each_ref().map(|data| other_file(&testbed, data, "moved"));
        for (data, moved) in data.iter().zip(&moved) {
            fs::rename(data, moved).unwrap();
            symlink(moved, data).unwrap();
        }
        delete_both(&pool, &record, &taken);
        for moved in &moved {
            assert!(read(moved) == before, "{}", moved.display());
        }
        assert!(listing(&testbed, "trash").is_empty());
    }
}

#[test]
fn a_file_that_is_mounted_over_the_data_keeps_its_own() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let (record, taken, data) = volume_with_snapshot(&pool);
    for data in &data {
        let other = other_file(&testbed, data, "other");
        fs::write(&other, pattern(2, MIB)).unwrap();
    }
    let others = data.each_ref().map(|data| other_file(&testbed, data, "other"));
    let bound = [0, 1].map(|n| Bound::new(&others[n], &data[n]));
    delete_both(&pool, &record, &taken);
    for other in &others {
        assert!(read(other) == pattern(2, MIB), "{}", other.display());
    }
    // They moved into the trash with the directories.
    for entry in listing(&testbed, "trash") {
        until_unmounted(&testbed.pool_path().join("trash").join(entry).join("data")).unwrap();
    }
    std::mem::forget(bound);
}

#[test]
fn what_is_being_read_stays_readable_to_its_end() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let (record, taken, data) = volume_with_snapshot(&pool);
        let before = read(&data[0]);
        let readers = data.each_ref().map(|data| File::open(data).unwrap());
        delete_both(&pool, &record, &taken);
        for mut reader in readers {
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).unwrap();
            assert!(rest == before);
        }
    }
}

/// Decision 0046.
#[test]
fn a_deleted_snapshot_stays_readable_on_a_device_by_hand() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let (record, taken, [_, data]) = volume_with_snapshot(&pool);
        let before = read(&data);
        let device = ByHand::attach(&data, true);
        delete_both(&pool, &record, &taken);
        assert!(read(&device.path()) == before);
    }
}

#[test]
fn a_pipe_is_not_waited_for() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let (record, taken, data) = volume_with_snapshot(&pool);
    for data in &data {
        fs::remove_file(data).unwrap();
        orlop_sys::tool::run("mkfifo", [data]).unwrap();
    }
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            delete_both(&pool, &record, &taken);
            done.send(()).unwrap();
        });
        let waited = is_done.recv_timeout(Duration::from_secs(60));
        // Lets go of a deletion that waits for a reader.
        while is_done.recv_timeout(Duration::from_millis(10)).is_err_and(|_| waited.is_err()) {
            for entry in listing(&testbed, "trash") {
                let pipe = testbed.pool_path().join("trash").join(entry).join("data");
                drop(orlop_sys::tool::run("timeout", ["1", "cat", pipe.to_str().unwrap()]));
            }
        }
        waited.unwrap();
    });
}
