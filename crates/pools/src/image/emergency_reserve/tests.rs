use std::fs;
use std::io::Write;

use orlop_model::{Error, IoLimits, Pool};

use super::super::ImagePool;
use super::super::testbed::*;
use super::*;

fn reserve_of(bed: &Bed) -> EmergencyReserve {
    EmergencyReserve::new("test", &bed.pool_path())
}

/// Takes all that is free, to the last block and the last inode that needs one.
fn fill(bed: &Bed) -> Vec<PathBuf> {
    let directory = bed.pool_path().with_extension("filler");
    fs::create_dir(&directory).unwrap();
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
fn a_full_pool_opens_and_lets_things_be_released_and_deleted() {
    for bed in [Bed::xfs(), Bed::ext4(), Bed::btrfs()].into_iter().flatten() {
        let pool = bed.open();
        let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
        scribble(&data_of(&pool, &record.id), 1, 8 * MIB);
        let shares = pool.directory.shares_extents();
        assert!(reserve_of(&bed).held() >= BYTES);
        drop(pool);
        fill(&bed);

        let pool = bed.open();
        assert_eq!(pool.directory.shares_extents(), shares);
        pool.health().check().unwrap();
        let refused = try_create(&pool, &volume_of(&pool, "b", MIB));
        assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
        change(&pool, &record.id, 100).unwrap();
        pool.provisioner().ensure_no_volume(&record.id).unwrap();
        assert_eq!(pool.catalogue().volume(&record.id).unwrap(), None);
        assert!(reserve_of(&bed).held() >= BYTES);
    }
}

#[test]
fn the_reserve_is_what_lets_a_record_be_replaced() {
    let Some(bed) = Bed::xfs() else { return };
    let pool = bed.open();
    let record = create(&pool, &volume_of(&pool, "a", 32 * MIB));
    reserve_of(&bed).give_up();
    let fillers = fill(&bed);
    let refused = change(&pool, &record.id, 100);
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));

    reserve_of(&bed).ensure();
    assert_eq!(reserve_of(&bed).held(), 0);
    for filler in fillers {
        let _ = fs::remove_file(filler);
    }
    orlop_sys::file::sync_filesystem(&bed.pool_path()).unwrap();
    reserve_of(&bed).ensure();
    assert!(reserve_of(&bed).held() >= BYTES);
}

#[test]
fn groups_in_a_full_pool_can_be_emptied_and_deleted() {
    // Not btrfs: what is given up while it is full to the last block it does not always give out
    // again.
    for bed in [Bed::xfs(), Bed::ext4()].into_iter().flatten() {
        let pool = bed.open();
        let volumes = ["a", "b"].map(|name| create(&pool, &volume_of(&pool, name, 32 * MIB)));
        scribble(&data_of(&pool, &volumes[0].id), 1, 8 * MIB);
        let mut group = volume_group(&pool, "g", &volumes);
        pool.catalogue().save_volume_group(&group, None).unwrap();
        let cut = try_take_group(&pool, &group_of(&pool, "s", &volumes)).unwrap();
        fill(&bed);

        let refused =
            pool.catalogue().save_volume_group(&volume_group(&pool, "new", &volumes), None);
        assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
        let was = group.clone();
        group.members.clear();
        pool.catalogue().save_volume_group(&group, Some(&was)).unwrap();
        pool.catalogue().ensure_no_volume_group(&group.id).unwrap();
        pool.provisioner().ensure_no_group_snapshot(&cut.id).unwrap();
        for directory in ["groups", "group-snapshots", "snapshots", "trash"] {
            let left = listing(&bed, directory);
            // The record of the group that was refused was begun under a hidden name.
            assert!(left.iter().all(|name| name.starts_with('.')), "{directory}: {left:?}");
        }
        assert!(reserve_of(&bed).held() >= BYTES);
    }
}
