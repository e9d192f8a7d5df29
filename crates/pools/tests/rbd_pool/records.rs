use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use orlop_model::record::RECORD_VERSION;
use orlop_model::{
    Error, IoLimits, NameDigest, Pool, Result, VolumeGroupId, VolumeGroupRecord, VolumeId,
    VolumeRecord,
};
use orlop_pools::RbdPool;
use orlop_sys::ceph::FENCED_FOR;

use crate::fixture::{Fixture, MIB, volume};

fn count(record: &mut VolumeRecord) -> Result<()> {
    let was = record.limits.read_iops.unwrap_or(0);
    record.limits = IoLimits { read_iops: Some(was + 1), ..record.limits };
    Ok(())
}

#[test]
fn concurrent_record_changes_are_not_lost() {
    let Some(fixture) = Fixture::new() else { return };
    let pools = [fixture.open(), fixture.open(), fixture.open()];
    let record = volume(&pools[0], "a", MIB);
    std::thread::scope(|scope| {
        for pool in &pools {
            scope.spawn(|| {
                let mut done = 0;
                while done < 10 {
                    match pool.catalogue().update_volume(&record.id, &mut count) {
                        Ok(_) => done += 1,
                        Err(Error::Busy { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let counted = pools[1].catalogue().volume(&record.id).unwrap().unwrap();
    assert_eq!(counted.limits.read_iops, Some(30));
}

#[test]
fn update_sees_concurrent_writes_and_may_refuse() {
    let Some(fixture) = Fixture::new() else { return };
    let pools = [fixture.open(), fixture.open()];
    let record = volume(&pools[0], "a", MIB);
    let mut turns = 0;
    let refused = pools[0].catalogue().update_volume(&record.id, &mut |record| {
        turns += 1;
        if turns == 1 {
            pools[1].catalogue().update_volume(&record.id, &mut count).unwrap();
            return count(record);
        }
        assert_eq!(record.limits.read_iops, Some(1), "read again");
        Err(Error::precondition("another node was here"))
    });
    assert_eq!(refused, Err(Error::precondition("another node was here")));
    assert_eq!(turns, 2);
    let there = pools[0].catalogue().volume(&record.id).unwrap().unwrap();
    assert_eq!(there.limits.read_iops, Some(1));
}

#[test]
fn a_blocklisted_client_connects_again_as_a_new_one() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", MIB);
    let other = fixture.io();
    // The only one that has this image open.
    let image = fixture.image(&record.id);
    let thrown_out = image.watchers().unwrap().remove(0).address;
    other.cluster().blocklist(&thrown_out, FENCED_FOR).unwrap();
    assert!(image.write(0, &[1; 4096]).and_then(|()| image.flush()).is_err());
    drop(image);

    let own = pool_address(&fixture, &pool, &record);
    other.cluster().blocklist(&own, FENCED_FOR).unwrap();
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    assert_eq!(
        pool.catalogue().update_volume(&record.id, &mut count).unwrap().limits.read_iops,
        Some(1)
    );
    assert_ne!(pool_address(&fixture, &pool, &record), own);
}

/// Seen while the pool has an image open.
fn pool_address(fixture: &Fixture, pool: &RbdPool, record: &VolumeRecord) -> String {
    let io = fixture.io();
    let seen = std::sync::Mutex::new(None);
    let reader = io.open_image(&record.id.to_string(), orlop_sys::ceph::Access::ReadOnly).unwrap();
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            while seen.lock().unwrap().is_none() {
                if let Some(watcher) = reader.watchers().unwrap().pop() {
                    *seen.lock().unwrap() = Some(watcher.address);
                }
            }
        });
        while !watching.is_finished() {
            pool.provisioner().ensure_reclaimed(&record.id).unwrap();
        }
    });
    seen.into_inner().unwrap().unwrap()
}

fn group(pool: &RbdPool, name: &str, members: &[&VolumeId]) -> VolumeGroupRecord {
    VolumeGroupRecord {
        version: RECORD_VERSION,
        id: VolumeGroupId::new(pool.id().clone(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        members: members.iter().copied().cloned().collect::<BTreeSet<_>>(),
        max_members: 9,
        created: SystemTime::now().into(),
    }
}

#[test]
fn a_stale_group_is_not_saved_and_a_volume_is_in_one_group() {
    let Some(fixture) = Fixture::new() else { return };
    let pools = [fixture.open(), fixture.open()];
    let volumes = ["x", "y"].map(|name| volume(&pools[0], name, MIB).id);
    let first = group(&pools[0], "a", &[&volumes[0]]);
    pools[0].catalogue().save_volume_group(&first, None).unwrap();
    assert_eq!(pools[1].catalogue().volume_groups(None, 0).unwrap(), std::slice::from_ref(&first));
    assert_eq!(pools[1].catalogue().volume_group(&first.id).unwrap(), Some(first.clone()));

    let is_busy =
        |outcome: Result<()>| assert!(matches!(outcome, Err(Error::Busy { .. })), "{outcome:?}");
    is_busy(pools[1].catalogue().save_volume_group(&first, None));
    let larger = VolumeGroupRecord { members: volumes.iter().cloned().collect(), ..first.clone() };
    pools[1].catalogue().save_volume_group(&larger, Some(&first)).unwrap();
    let emptied = VolumeGroupRecord { members: BTreeSet::new(), ..first.clone() };
    is_busy(pools[0].catalogue().save_volume_group(&emptied, Some(&first)));

    let second = group(&pools[0], "b", &[&volumes[1]]);
    is_busy(pools[0].catalogue().save_volume_group(&second, None));
    assert_eq!(pools[0].catalogue().volume_group(&second.id).unwrap(), None);
    pools[0].catalogue().save_volume_group(&emptied, Some(&larger)).unwrap();
    pools[0].catalogue().save_volume_group(&second, None).unwrap();
    for _ in 0..2 {
        pools[1].catalogue().ensure_no_volume_group(&second.id).unwrap();
    }
    assert_eq!(pools[0].catalogue().volume_groups(None, 0).unwrap(), [emptied]);
}

/// Two controllers, of which neither knows what the other is about to do.
#[test]
fn a_volume_is_not_deleted_while_it_joins_a_group() {
    let Some(fixture) = Fixture::new() else { return };
    let pools = [fixture.open(), fixture.open()];
    for round in 0..20 {
        let record = volume(&pools[0], "a", MIB);
        let group = group(&pools[0], "g", &[&record.id]);
        let (joined, deleted) = std::thread::scope(|scope| {
            let joining = scope.spawn(|| {
                // At another moment of the deletion each time.
                std::thread::sleep(Duration::from_micros(500 * round));
                pools[0].catalogue().save_volume_group(&group, None)
            });
            let deleted = pools[1].provisioner().ensure_no_volume(&record.id);
            (joining.join().unwrap(), deleted)
        });
        let there = pools[0].catalogue().volume(&record.id).unwrap().is_some();
        let left = pools[0].catalogue().volume_group(&group.id).unwrap();
        let is_member = left.as_ref().is_some_and(|group| group.members.contains(&record.id));
        assert_eq!(there, is_member, "round {round}: {joined:?}, {deleted:?}");
        assert_eq!((joined.is_ok(), deleted.is_ok()), (there, !there), "{joined:?}, {deleted:?}");
        pools[1].catalogue().ensure_no_volume_group(&group.id).unwrap();
        pools[1].provisioner().ensure_no_volume(&record.id).unwrap();
    }
}
