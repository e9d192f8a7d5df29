use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

use orlop_model::{DeviceAccess, Pool};
use orlop_sys::file::allocated_bytes;

use super::*;
use crate::image::testbed::*;
use crate::image::{ImagePool, ImagePoolConfig};

#[test]
fn volume_and_record_persist_after_reopening() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let new = volume_of(&pool, "a", 64 * MIB);
        let record = create(&pool, &new);
        assert_eq!(record.id, new.id);
        assert_eq!(pool.catalogue().volume(&new.id).unwrap().as_ref(), Some(&record));
        assert_eq!(fs::metadata(data_of(&pool, &new.id)).unwrap().len(), 64 * MIB);
        assert!(allocated_bytes(&data_of(&pool, &new.id)).unwrap() < MIB);
        drop(pool);
        let pool = testbed.open();
        assert_eq!(pool.catalogue().volume(&new.id).unwrap(), Some(record));
        assert_eq!(pool.catalogue().volumes(None, 0).unwrap().len(), 1);
    }
}

#[test]
fn volume_files_are_private() {
    let Some(testbed) = Testbed::plain() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", MIB));
    let home = pool.catalogue.volume_index().directory_of(&record.id);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(home.directory()), 0o700);
    assert_eq!(mode(&home.data()), 0o600);
    assert_eq!(mode(&home.record()), 0o600);
    assert_eq!(mode(&testbed.pool_path()), 0o700);
}

#[test]
fn a_thick_volume_has_its_space() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let record = create(&pool, &thick_volume_of(&pool, "a", 64 * MIB));
        let data = data_of(&pool, &record.id);
        assert!(allocated_bytes(&data).unwrap() >= 64 * MIB);
        assert!(is_zero(&read(&data)));
    }
}

#[test]
fn a_dropped_draft_leaves_nothing() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let new = volume_of(&pool, "a", 64 * MIB);
        let mut draft = pool.provisioner().begin_volume(&new).unwrap();
        draft.capture().unwrap();
        assert_eq!(listing(&testbed, "staging").len(), 1);
        drop(draft);
        assert!(listing(&testbed, "staging").is_empty());
        assert!(listing(&testbed, "volumes").is_empty());
        assert_eq!(pool.catalogue().volume(&new.id).unwrap(), None);
    }
}

#[test]
fn clone_is_equal_at_first_then_independent() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let source = create(&pool, &volume_of(&pool, "source", 32 * MIB));
        scribble(&data_of(&pool, &source.id), 1, 4 * MIB);
        let from = ContentSource::Volume(source.id.clone());
        let larger = create(&pool, &copy_of(&pool, "larger", from.clone(), 48 * MIB));
        let same = create(&pool, &copy_of(&pool, "same", from, 32 * MIB));

        let original = read(&data_of(&pool, &source.id));
        assert!(original == read(&data_of(&pool, &same.id)));
        let copy = read(&data_of(&pool, &larger.id));
        assert_eq!(u64::try_from(copy.len()).unwrap(), 48 * MIB);
        assert!(copy[..original.len()] == original);
        assert!(is_zero(&copy[original.len()..]));

        scribble(&data_of(&pool, &source.id), 2, 4 * MIB);
        assert!(read(&data_of(&pool, &same.id)) == original);
        scribble(&data_of(&pool, &same.id), 3, 4 * MIB);
        assert!(read(&data_of(&pool, &larger.id))[..original.len()] == original);
        assert!(read(&data_of(&pool, &source.id)) != original);
        pool.provisioner().ensure_no_volume(&source.id).unwrap();
        assert!(read(&data_of(&pool, &larger.id))[..original.len()] == original);
    }
}

#[test]
fn a_clone_takes_no_space_where_extents_are_shared() {
    for testbed in Testbed::sharing() {
        let pool = testbed.open();
        let source = create(&pool, &volume_of(&pool, "source", 256 * MIB));
        scribble(&data_of(&pool, &source.id), 1, 64 * MIB);
        let before = testbed.free();
        let from = ContentSource::Volume(source.id);
        let copy = create(&pool, &copy_of(&pool, "copy", from, 256 * MIB));
        let after = testbed.free();
        assert!(before.abs_diff(after) < 16 * MIB, "{before} {after}");
        assert!(allocated_bytes(&data_of(&pool, &copy.id)).unwrap() >= 128 * MIB);
    }
}

#[test]
fn copy_of_many_extents_is_the_captured_data() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let source = create(&pool, &volume_of(&pool, "source", 64 * MIB));
    let data = data_of(&pool, &source.id);
    let file = fs::File::options().write(true).open(&data).unwrap();
    for n in 0..3000 {
        use std::os::unix::fs::FileExt;
        file.write_all_at(&pattern(n, 4096), n * 16384).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let from = ContentSource::Volume(source.id.clone());
    let mut draft =
        pool.provisioner().begin_volume(&copy_of(&pool, "copy", from, 64 * MIB)).unwrap();
    assert!(bed_draft_is_not_blank(&testbed));
    scribble(&data, 7, MIB);
    draft.capture().unwrap();
    let at_the_cut = read(&data);
    scribble(&data, 8, MIB);
    let copy = draft.commit().unwrap();
    assert!(read(&data_of(&pool, &copy.id)) == at_the_cut);
}

/// More than 2000 extents are shared before the capture.
fn bed_draft_is_not_blank(testbed: &Testbed) -> bool {
    let staging = testbed.pool_path().join("staging");
    let draft = staging.join(&listing(testbed, "staging")[0]).join("data");
    allocated_bytes(&draft).unwrap() > 0
}

#[test]
fn a_thick_copy_has_space_for_its_holes() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let source = create(&pool, &volume_of(&pool, "source", 32 * MIB));
        scribble(&data_of(&pool, &source.id), 1, 4 * MIB);
        let mut new = copy_of(&pool, "copy", ContentSource::Volume(source.id.clone()), 48 * MIB);
        new.parameters.provisioning = Provisioning::Thick;
        let copy = create(&pool, &new);
        assert!(allocated_bytes(&data_of(&pool, &copy.id)).unwrap() >= 48 * MIB);
        let original = read(&data_of(&pool, &source.id));
        assert!(read(&data_of(&pool, &copy.id))[..original.len()] == original);
    }
}

/// All of it, twice, as a workload does.
fn overwrite(pool: &ImagePool, record: &VolumeRecord) -> std::io::Result<()> {
    let device = pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).unwrap();
    let file = fs::File::options().write(true).open(device.path)?;
    for seed in 1..=2 {
        file.write_all_at(&pattern(seed, record.capacity_bytes), 0)?;
        file.sync_all()?;
    }
    drop(file);
    pool.devices().ensure_detached(&record.id, DeviceAccess::ReadWrite).unwrap();
    Ok(())
}

#[test]
fn thick_volumes_can_be_overwritten_on_a_full_pool() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let source = create(&pool, &volume_of(&pool, "source", 8 * MIB));
        scribble(&data_of(&pool, &source.id), 1, 2 * MIB);
        let taken = snapshot(&pool, "s", &source);
        let sources = [
            None,
            Some(ContentSource::Snapshot(taken.id)),
            Some(ContentSource::Volume(source.id.clone())),
        ];
        let expected = read(&data_of(&pool, &source.id));
        let mut volumes = Vec::new();
        for (number, from) in sources.into_iter().enumerate() {
            let mut new = thick_volume_of(&pool, &format!("thick-{number}"), 10 * MIB);
            new.source = from;
            let record = create(&pool, &new);
            if new.source.is_some() {
                let copy = read(&data_of(&pool, &record.id));
                assert!(copy[..expected.len()] == expected);
                assert!(is_zero(&copy[expected.len()..]));
            }
            volumes.push(pool.provisioner().ensure_capacity(&record.id, 12 * MIB).unwrap());
        }
        // Not the machine's own disk.
        if testbed.is_disk() {
            testbed.fill_up();
        }
        for record in &volumes {
            overwrite(&pool, record).unwrap();
        }
        assert!(read(&data_of(&pool, &source.id)) == expected);
        assert!(listing(&testbed, "staging").is_empty());
    }
}

#[test]
fn thick_volume_is_overwritable_after_snapshot_delete() {
    for testbed in Testbed::sharing() {
        let pool = testbed.open();
        let volume = create(&pool, &thick_volume_of(&pool, "a", 8 * MIB));
        overwrite(&pool, &volume).unwrap();
        let taken = snapshot(&pool, "s", &volume);
        let kept = read(&snapshot_data_of(&pool, &taken.id));
        scribble(&data_of(&pool, &volume.id), 9, MIB);
        assert!(read(&snapshot_data_of(&pool, &taken.id)) == kept);
        pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
        testbed.fill_up();
        overwrite(&pool, &volume).unwrap();
    }
}

#[test]
fn copy_of_a_thick_volume_needs_its_full_size() {
    for testbed in Testbed::sharing() {
        let pool = testbed.open();
        let thick = create(&pool, &thick_volume_of(&pool, "thick", 600 * MIB));
        let group = group_of(&pool, "g", std::slice::from_ref(&thick));
        let from = ContentSource::Volume(thick.id.clone());
        let refused = [
            pool.provisioner().begin_snapshot(&snapshot_of(&pool, "s", &thick)).err(),
            pool.provisioner().begin_group_snapshot(&group).err(),
            pool.provisioner().begin_volume(&copy_of(&pool, "copy", from, 600 * MIB)).err(),
        ];
        for refused in refused {
            assert!(matches!(refused, Some(Error::Exhausted(_))), "{refused:?}");
        }
        pool.provisioner().ensure_no_volume(&thick.id).unwrap();
        drop(pool);
        // btrfs frees it with the next sync.
        assert!(testbed.free() > 700 * MIB);
        // Even where more is promised than there is, for a thick volume is to be exempt from that.
        let config = ImagePoolConfig { overcommit_percent: 1000, ..testbed.config() };
        let pool = ImagePool::open(config).unwrap();
        let thick = create(&pool, &thick_volume_of(&pool, "thick", 600 * MIB));
        let from = ContentSource::Volume(thick.id.clone());
        let refused =
            pool.provisioner().begin_volume(&copy_of(&pool, "copy", from, 600 * MIB)).err();
        assert!(matches!(refused, Some(Error::Exhausted(_))), "{refused:?}");
        let refused = pool.provisioner().begin_snapshot(&snapshot_of(&pool, "s", &thick)).err();
        assert!(matches!(refused, Some(Error::Exhausted(_))), "{refused:?}");
        pool.provisioner().ensure_no_volume(&thick.id).unwrap();
        assert!(testbed.free() > 700 * MIB);
        let fits = create(&pool, &thick_volume_of(&pool, "fits", 200 * MIB));
        snapshot(&pool, "s", &fits);
    }
}

#[test]
fn source_must_exist_and_fit() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let source = create(&pool, &volume_of(&pool, "source", 32 * MIB));
    let missing = ContentSource::Volume(volume_id(&pool, "missing"));
    let refused = try_create(&pool, &copy_of(&pool, "a", missing, 32 * MIB));
    assert!(matches!(refused, Err(Error::NoSuchVolume(_))));
    let missing = ContentSource::Snapshot(snapshot_id(&pool, "missing"));
    let refused = try_create(&pool, &copy_of(&pool, "a", missing, 32 * MIB));
    assert!(matches!(refused, Err(Error::NoSuchSnapshot(_))));
    let from = ContentSource::Volume(source.id.clone());
    let refused = try_create(&pool, &copy_of(&pool, "a", from.clone(), 31 * MIB));
    assert!(matches!(refused, Err(Error::OutOfRange(_))));
    fs::remove_file(data_of(&pool, &source.id)).unwrap();
    let refused = try_create(&pool, &copy_of(&pool, "a", from, 32 * MIB));
    assert!(matches!(refused, Err(Error::Damaged { .. })));
    assert!(listing(&testbed, "staging").is_empty());
}

#[test]
fn second_commit_of_an_id_finds_the_first() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let new = volume_of(&pool, "a", 32 * MIB);
    let first = pool.provisioner().begin_volume(&new).unwrap();
    let second = pool.provisioner().begin_volume(&new).unwrap();
    let mut other = new.clone();
    other.capacity_bytes = 64 * MIB;
    let third = pool.provisioner().begin_volume(&other).unwrap();
    let made = first.commit().unwrap();
    assert_eq!(second.commit().unwrap(), made);
    assert!(matches!(third.commit(), Err(Error::Conflict { .. })));
    assert_eq!(pool.catalogue().volume(&new.id).unwrap(), Some(made));
    assert!(listing(&testbed, "staging").is_empty());
}

#[test]
fn volume_committed_without_notice_is_found() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let new = volume_of(&pool, "a", 32 * MIB);
    let made = create(&pool, &new);
    // As if the rename had been made, and the fsync after it had failed.
    pool.catalogue.volume_index().take_out(&new.id);
    assert_eq!(pool.catalogue().volume(&new.id).unwrap(), None);
    assert_eq!(try_create(&pool, &new).unwrap(), made);
    assert_eq!(pool.catalogue().volume(&new.id).unwrap(), Some(made));
}

/// A disk may fail in the instant after the rename, and give neither the directory nor the record for a while.
#[test]
fn creation_that_may_have_succeeded_is_not_forgotten() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let new = volume_of(&pool, "d", 64 * MIB);
    let made = create(&pool, &new);
    let home = pool.catalogue.volume_index().directory_of(&new.id);
    let home = home.directory();
    let aside = testbed.pool_path().join("aside");
    let promised = || pool.provisioner().space().unwrap().promised.unwrap();
    for (is_there, is_deleted) in [(true, false), (false, false), (false, true)] {
        orlop_sys::file::remove_tree(&aside).unwrap();
        fs::rename(home, &aside).unwrap();
        pool.capacity.remove(pool.catalogue.volume_index(), &new.id);
        let before = promised();
        let draft = pool.provisioner().begin_volume(&new).unwrap();
        let staged = testbed.pool_path().join("staging").join(&listing(&testbed, "staging")[0]);
        fs::write(staged.join("record.json"), "").unwrap();
        fs::create_dir(home).unwrap();
        symlink("record.json", home.join("record.json")).unwrap();
        draft.commit().unwrap_err();
        for _ in 0..2 {
            let unknown = pool.catalogue().volume(&new.id);
            assert!(unknown.is_err(), "{unknown:?}");
            assert_eq!(promised(), before + 64 * MIB);
        }
        assert!(pool.provisioner().ensure_no_volume(&new.id).is_err());

        fs::remove_file(home.join("record.json")).unwrap();
        fs::remove_dir(home).unwrap();
        if is_there {
            fs::rename(&aside, home).unwrap();
            assert_eq!(pool.catalogue().volume(&new.id).unwrap().as_ref(), Some(&made));
        } else {
            assert_eq!(pool.catalogue().volume(&new.id).unwrap(), None);
            let other = create(&pool, &volume_of(&pool, "a", MIB)).id;
            assert!(new.id < other);
            // What comes to nothing makes no page shorter.
            assert_eq!(pool.catalogue().volumes(None, 1).unwrap()[0].0, other);
            pool.provisioner().ensure_no_volume(&other).unwrap();
            if is_deleted {
                pool.provisioner().ensure_no_volume(&new.id).unwrap();
                assert_eq!(promised(), before, "nothing stays booked for what never was");
            }
            create(&pool, &new);
        }
        assert_eq!(promised(), before + 64 * MIB);
    }
    pool.provisioner().ensure_no_volume(&new.id).unwrap();
    assert_eq!(promised(), 0);
}

#[test]
fn existing_volume_must_match_the_request() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let new = volume_of(&pool, "a", 32 * MIB);
    let made = create(&pool, &new);
    let source = create(&pool, &volume_of(&pool, "source", 32 * MIB));
    let mut larger = new.clone();
    larger.capacity_bytes = 48 * MIB;
    let mut thick = new.clone();
    thick.parameters.provisioning = Provisioning::Thick;
    let mut copy = new.clone();
    copy.source = Some(ContentSource::Volume(source.id));
    for other in [larger, thick, copy] {
        // As if it had come back with a pool that was away.
        pool.catalogue.volume_index().take_out(&new.id);
        let refused = try_create(&pool, &other);
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        assert_eq!(pool.catalogue().volume(&new.id).unwrap().as_ref(), Some(&made));
    }
}

#[test]
fn copy_without_space_cannot_be_committed() {
    let Some(testbed) = Testbed::ext4() else { return };
    let pool = testbed.open();
    let source = create(&pool, &volume_of(&pool, "source", 128 * MIB));
    scribble(&data_of(&pool, &source.id), 1, 64 * MIB);
    let from = ContentSource::Volume(source.id);
    let new = copy_of(&pool, "copy", from, 128 * MIB);
    let mut draft = pool.provisioner().begin_volume(&new).unwrap();
    // Someone else on the same filesystem is faster.
    let filler = fs::File::create(testbed.pool_path().join("filler")).unwrap();
    file::preallocate(&filler, 0, testbed.free() - 8 * MIB).unwrap();
    assert!(matches!(draft.capture(), Err(Error::Exhausted(_))));
    assert!(matches!(draft.commit(), Err(Error::Exhausted(_))));
    assert_eq!(pool.catalogue().volume(&new.id).unwrap(), None);
    assert!(listing(&testbed, "staging").is_empty());
    assert!(pool.health().condition(&volume_id(&pool, "source")).unwrap().is_abnormal());
}
