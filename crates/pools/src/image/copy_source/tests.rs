use orlop_model::{ContentSource, Pool, VolumeRecord};
use orlop_sys::filesystem::FsKind;
use orlop_sys::mounts::{self, BindAccess};

use super::super::ImagePool;
use super::super::testbed::*;

/// Everything that copies a volume, and whether it shares the volume's data.
fn assert_copies_share(pool: &ImagePool, volume: &VolumeRecord, name: &str) {
    let data = places(&data_of(pool, &volume.id));
    let snapshot = snapshot(pool, &format!("{name}-s"), volume);
    assert_eq!(places(&snapshot_data_of(pool, &snapshot.id)), data, "{name}");
    let sources = [ContentSource::Volume(volume.id.clone()), ContentSource::Snapshot(snapshot.id)];
    for (number, from) in sources.into_iter().enumerate() {
        let new = copy_of(pool, &format!("{name}-{number}"), from, volume.capacity_bytes);
        let copy = create(pool, &new);
        assert_eq!(places(&data_of(pool, &copy.id)), data, "{name}");
    }
    let members = std::slice::from_ref(volume);
    let group = try_take_group(pool, &group_of(pool, &format!("{name}-g"), members)).unwrap();
    assert_eq!(places(&snapshot_data_of(pool, &group.members[0])), data, "{name}");
}

#[test]
fn copies_share_extents_under_any_mount_options() {
    let options = [&["datacow"][..], &["nodatasum"], &["nodatacow"]];
    let Some(testbed) = Testbed::btrfs() else { return };
    drop(testbed.open());
    for (number, made_with) in options.iter().enumerate() {
        testbed.mount_again(FsKind::Btrfs, made_with);
        let pool = testbed.open();
        let name = format!("volume-{number}");
        let volume = create(&pool, &volume_of(&pool, &name, 16 * MIB));
        scribble(&data_of(&pool, &volume.id), 1, MIB);
        drop(pool);
        for copied_with in options {
            testbed.mount_again(FsKind::Btrfs, copied_with);
            let pool = testbed.open();
            assert!(pool.provisioner().has_atomic_copies());
            assert_copies_share(&pool, &volume, &format!("{made_with:?}-{copied_with:?}"));
            pool.close();
        }
    }
}

#[test]
fn atomic_copy_is_never_made_piecemeal() {
    for testbed in Testbed::sharing() {
        let pool = testbed.open();
        let volume = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        scribble(&data_of(&pool, &volume.id), 1, MIB);
        // No extent of it can be shared with a file of the pool.
        let Some(elsewhere) = Testbed::ext4() else { return };
        let foreign = elsewhere.pool_path().with_file_name("foreign");
        std::fs::copy(data_of(&pool, &volume.id), &foreign).unwrap();
        mounts::bind(&foreign, &data_of(&pool, &volume.id), BindAccess::ReadWrite).unwrap();

        let from = ContentSource::Volume(volume.id.clone());
        let mut outcomes = vec![
            try_create(&pool, &copy_of(&pool, "copy", from, 16 * MIB)).err(),
            pool.provisioner()
                .begin_snapshot(&snapshot_of(&pool, "s", &volume))
                .unwrap()
                .capture()
                .err(),
        ];
        // A moment of btrfs holds the pool's own files, not what is mounted over them.
        if !pool.provisioner().has_atomic_groups() {
            let group = group_of(&pool, "g", std::slice::from_ref(&volume));
            outcomes.push(try_take_group(&pool, &group).err());
        }
        mounts::ensure_unmounted(&data_of(&pool, &volume.id)).unwrap();
        for outcome in outcomes {
            let refused = outcome.expect("copied piece by piece").to_string();
            assert!(refused.contains("point-in-time copy"), "{refused}");
        }
        assert!(listing(&testbed, "snapshots").is_empty());
        assert!(listing(&testbed, "staging").is_empty());
    }
}
