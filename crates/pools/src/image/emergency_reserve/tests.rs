use std::fs;
use std::io::Write;

use orlop_model::{Error, IoLimits, Pool};

use super::super::ImagePool;
use super::super::testbed::*;
use super::*;

fn reserve_of(testbed: &Testbed) -> EmergencyReserve {
    EmergencyReserve::new("test", &testbed.pool_path())
}

fn beside(testbed: &Testbed) -> PathBuf {
    testbed.pool_path().with_extension("filler")
}

/// Takes all that is free, to the last block and the last inode that needs one.
fn fill(directory: &Path) -> Vec<PathBuf> {
    fs::create_dir(directory).unwrap();
    let filler = directory.join("filler");
    let mut file = File::create(&filler).unwrap();
    for piece in [16 * MIB, MIB, 64 << 10, 4096] {
        while file.write_all(&pattern(piece, piece)).and_then(|()| file.sync_all()).is_ok() {}
    }
    let mut fillers = vec![filler];
    for n in 0..10_000 {
        let path = directory.join(n.to_string());
        let made = fs::write(&path, [1; 4096]).and_then(|()| File::open(&path)?.sync_all());
        fillers.push(path);
        if made.is_err() {
            break;
        }
    }
    fillers
}

fn change(pool: &ImagePool, id: &orlop_model::VolumeId, iops: u64) -> Result<()> {
    let limits = IoLimits { read_iops: Some(iops), ..IoLimits::default() };
    pool.catalogue()
        .update_volume(id, &mut |record| {
            record.limits = limits;
            Ok(())
        })
        .map(|_| ())
}

#[test]
fn full_pool_opens_and_allows_detach_and_delete() {
    for testbed in [Testbed::xfs(), Testbed::ext4(), Testbed::btrfs()].into_iter().flatten() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
        scribble(&data_of(&pool, &record.id), 1, 8 * MIB);
        let shares = pool.directory.shares_extents();
        assert!(reserve_of(&testbed).held() >= BYTES);
        drop(pool);
        fill(&beside(&testbed));

        let pool = testbed.open();
        assert_eq!(pool.directory.shares_extents(), shares);
        pool.health().check().unwrap();
        let refused = try_create(&pool, &volume_of(&pool, "b", MIB));
        assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
        change(&pool, &record.id, 100).unwrap();
        pool.provisioner().ensure_no_volume(&record.id).unwrap();
        assert_eq!(pool.catalogue().volume(&record.id).unwrap(), None);
        assert!(reserve_of(&testbed).held() >= BYTES);
    }
}

/// btrfs lets no file be cut then, and lets files be removed.
#[test]
fn pool_that_used_up_its_quota_allows_detach_and_delete() {
    let Some(testbed) = Testbed::btrfs() else { return };
    let pool = testbed.open();
    let records = ["a", "b"].map(|name| create(&pool, &volume_of(&pool, name, 32 * MIB)));
    scribble(&data_of(&pool, &records[0].id), 1, 8 * MIB);
    orlop_sys::file::sync_filesystem(&testbed.pool_path()).unwrap();
    let quota = |words: &[&str]| {
        let path = testbed.pool_path();
        let words = words.iter().map(Path::new).chain([path.as_path()]);
        orlop_sys::tool::run("btrfs", words).unwrap();
    };
    quota(&["quota", "enable"]);
    quota(&["quota", "rescan", "-w"]);
    // The pool is a subvolume.
    quota(&["qgroup", "limit", "64M"]);
    fill(&testbed.pool_path().join("of another program"));
    let refused = try_create(&pool, &volume_of(&pool, "c", MIB));
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    change(&pool, &records[1].id, 100).unwrap();
    for record in &records {
        pool.provisioner().ensure_no_volume(&record.id).unwrap();
        assert_eq!(pool.catalogue().volume(&record.id).unwrap(), None);
    }
    assert!(listing(&testbed, "trash").is_empty());
}

#[test]
fn reserve_allows_replacing_a_record() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    reserve_of(&testbed).give_up();
    let fillers = fill(&beside(&testbed));
    let refused = change(&pool, &record.id, 100);
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));

    reserve_of(&testbed).ensure();
    assert_eq!(reserve_of(&testbed).held(), 0);
    for filler in fillers {
        let _ = fs::remove_file(filler);
    }
    orlop_sys::file::sync_filesystem(&testbed.pool_path()).unwrap();
    reserve_of(&testbed).ensure();
    assert!(reserve_of(&testbed).held() >= BYTES);
}

#[test]
fn groups_in_a_full_pool_can_be_emptied_and_deleted() {
    // Not btrfs: what is given up while it is full to the last block it does not always give out
    // again.
    for testbed in [Testbed::xfs(), Testbed::ext4()].into_iter().flatten() {
        let pool = testbed.open();
        let volumes = ["a", "b"].map(|name| create(&pool, &volume_of(&pool, name, 32 * MIB)));
        scribble(&data_of(&pool, &volumes[0].id), 1, 8 * MIB);
        let mut group = volume_group(&pool, "g", &volumes);
        pool.catalogue().save_volume_group(&group, None).unwrap();
        let taken = try_take_group(&pool, &group_of(&pool, "s", &volumes)).unwrap();
        fill(&beside(&testbed));

        let refused =
            pool.catalogue().save_volume_group(&volume_group(&pool, "new", &volumes), None);
        assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
        let was = group.clone();
        group.members.clear();
        pool.catalogue().save_volume_group(&group, Some(&was)).unwrap();
        pool.catalogue().ensure_no_volume_group(&group.id).unwrap();
        pool.provisioner().ensure_no_group_snapshot(&taken.id).unwrap();
        for directory in ["groups", "group-snapshots", "snapshots", "trash"] {
            let left = listing(&testbed, directory);
            // The record of the group that was refused was begun under a hidden name.
            assert!(left.iter().all(|name| name.starts_with('.')), "{directory}: {left:?}");
        }
        assert!(reserve_of(&testbed).held() >= BYTES);
    }
}

#[test]
fn a_link_in_its_place_leads_nowhere() {
    let Some(testbed) = Testbed::xfs() else { return };
    drop(testbed.open());
    let (reserve, other) = (reserve_of(&testbed), testbed.pool_path().with_extension("other"));
    fs::write(&other, "of another program").unwrap();
    fs::remove_file(&reserve.path).unwrap();
    std::os::unix::fs::symlink(&other, &reserve.path).unwrap();
    reserve.ensure();
    reserve.give_up();
    testbed.open();
    assert_eq!(fs::read_to_string(&other).unwrap(), "of another program");
    assert_eq!(file::allocated_bytes(&other).unwrap(), 4096);
}
