use std::collections::BTreeSet;

use orlop_model::{Error, HealthReason, NewVolume, Pool, Provisioning, VolumeParameters};

use crate::fixture::{Fixture, MIB, create, new_volume, run, until, volume, volume_id, write};

#[test]
fn a_volume_is_an_image_with_all_features_and_a_record() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", 64 * MIB);
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));

    let info = fixture.rbd_json(&["info", &record.id.to_string()]);
    assert_eq!(info["size"], 64 * MIB);
    let features: BTreeSet<_> =
        info["features"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    let wanted = ["deep-flatten", "exclusive-lock", "fast-diff", "layering", "object-map"];
    assert_eq!(features, wanted.into());

    let other = fixture.open();
    assert_eq!(other.id(), pool.id(), "all daemons open one pool");
    assert_eq!(other.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    let again = create(&other, &new_volume(&other, "a", 64 * MIB));
    assert!(matches!(again, Err(Error::Busy { .. })), "{again:?}");
    assert!(!pool.health().condition(&record.id).unwrap().is_abnormal());
    pool.health().check().unwrap();
}

#[test]
fn concurrent_creates_of_one_name_make_one_volume() {
    let Some(fixture) = Fixture::new() else { return };
    let pools = [fixture.open(), fixture.open(), fixture.open()];
    let mut won = 0;
    for round in 0..5 {
        let name = format!("contested-{round}");
        let made = std::thread::scope(|scope| {
            let attempts: Vec<_> = (0..6)
                .map(|turn| {
                    let (pool, name) = (&pools[turn % pools.len()], &name);
                    let size = (1 + u64::try_from(turn).unwrap()) * MIB;
                    scope.spawn(move || create(pool, &new_volume(pool, name, size)))
                })
                .collect();
            attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect::<Vec<_>>()
        });
        let winners: Vec<_> = made.iter().filter_map(|made| made.as_ref().ok()).collect();
        for lost in made.iter().filter_map(|made| made.as_ref().err()) {
            assert!(matches!(lost, Error::Busy { .. }), "{lost}");
        }
        assert!(winners.len() <= 1, "{winners:?}");
        won += winners.len();
        let id = volume_id(&pools[0], &name);
        let there = pools[1].catalogue().volume(&id).unwrap();
        assert_eq!(there.as_ref(), winners.first().copied(), "the call that succeeded has made it");
        if let Some(record) = there {
            assert_eq!(fixture.image(&id).size().unwrap(), record.capacity_bytes);
        }
        // Those who lost are called again by their orchestrator.
        if pools[0].catalogue().volume(&id).unwrap().is_none() {
            volume(&pools[0], &name, MIB);
        }
    }
    assert_eq!(fixture.image_names().len(), 5);
    assert!(won > 0, "all of them only stood in each other's way");
}

#[test]
fn pages_of_volumes_hold_no_drafts_and_no_foreign_images() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let mut records: Vec<_> =
        (0..5).map(|n| volume(&pool, &format!("v{n}"), u64::from(n + 1_u32) * MIB)).collect();
    records.sort_by(|a, b| a.id.cmp(&b.id));
    fixture.rbd(&["create", "--size", "1M", "another-programs"]);
    fixture.rbd(&["create", "--size", "1M", &volume_id(&pool, "draft").to_string()]);

    let listed = |after, limit| -> Vec<_> {
        let page = pool.catalogue().volumes(after, limit).unwrap();
        page.into_iter().map(|(_, record)| record.unwrap()).collect()
    };
    assert_eq!(listed(None, 0), records);
    assert_eq!(listed(None, 2), records[..2]);
    assert_eq!(listed(Some(&records[1].id), 2), records[2..4]);
    assert_eq!(listed(Some(&records[3].id), 9), records[4..]);
    assert_eq!(pool.catalogue().volume(&volume_id(&pool, "draft")).unwrap(), None);
}

#[test]
fn a_damaged_record_is_an_error_and_left_as_it_is() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", MIB);
    let image = fixture.image(&record.id);
    let key = format!("orlop.record.{}", image.id().unwrap());
    image.set_metadata(&key, "{").unwrap();
    drop(image);
    let is_damaged = |error: Option<Error>| {
        assert!(matches!(error, Some(Error::Damaged { .. })), "{error:?}");
    };
    is_damaged(pool.catalogue().volume(&record.id).err());
    is_damaged(create(&pool, &new_volume(&pool, "a", MIB)).err());
    is_damaged(pool.provisioner().ensure_no_volume(&record.id).err());
    is_damaged(pool.catalogue().volumes(None, 0).unwrap()[0].1.clone().err());
    let (well, missing) = (volume(&pool, "b", MIB), volume_id(&pool, "c"));
    let conditions = pool.health().conditions(&[record.id.clone(), well.id.clone(), missing]);
    let reasons = conditions[0].as_ref().unwrap().problems().iter().map(|problem| problem.reason);
    assert_eq!(reasons.collect::<Vec<_>>(), [HealthReason::RecordDamaged], "{conditions:?}");
    assert!(!conditions[1].as_ref().unwrap().is_abnormal(), "{conditions:?}");
    assert!(matches!(conditions[2], Err(Error::NoSuchVolume(_))), "{conditions:?}");
    assert_eq!(pool.health().condition(&record.id), conditions[0]);
    assert_eq!(fixture.image(&record.id).metadata(&key).unwrap().as_deref(), Some("{"));
}

#[test]
fn oversized_volume_is_refused_and_free_space_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let capacity = pool.provisioner().capacity(Provisioning::Thin).unwrap();
    let reported: serde_json::Value =
        serde_json::from_str(&run("ceph", &["df", "--format", "json"])).unwrap();
    let reported =
        reported["pools"].as_array().unwrap().iter().find(|pool| pool["name"] == "rbd").unwrap();
    // Other tests write at the same time.
    let reported = reported["stats"]["max_avail"].as_u64().unwrap();
    assert!(capacity.available_bytes.abs_diff(reported) < 1 << 30, "{capacity:?}, {reported}");
    assert!(capacity.largest_volume <= capacity.available_bytes);

    let too_large = create(&pool, &new_volume(&pool, "a", 1 << 50));
    assert!(matches!(too_large, Err(Error::Exhausted(_))), "{too_large:?}");
    let record = volume(&pool, "a", MIB);
    let too_large = pool.provisioner().ensure_capacity(&record.id, 1 << 50);
    assert!(matches!(too_large, Err(Error::Exhausted(_))), "{too_large:?}");
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record));

    let parameters = VolumeParameters { provisioning: Provisioning::Thick, ..Default::default() };
    let thick = NewVolume { parameters, ..new_volume(&pool, "thick", MIB) };
    let refused = create(&pool, &thick);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert_eq!(pool.provisioner().capacity(Provisioning::Thick).unwrap().available_bytes, 0);
}

/// Many times: librbd alone gets it wrong only now and then.
#[test]
fn racing_expansions_never_shrink_a_volume() {
    let Some(fixture) = Fixture::new() else { return };
    let pools = [fixture.open(), fixture.open()];
    let record = volume(&pools[0], "a", 4 * MIB);
    // In use all the while, as by a node.
    let image = fixture.image(&record.id);
    for round in 0..30 {
        write(&image, 0, 1, MIB);
        let base = 32 * round;
        std::thread::scope(|scope| {
            for (pool, more) in [8, 32, 16, 24].into_iter().enumerate() {
                let (pool, id) = (&pools[pool % 2], &record.id);
                scope.spawn(move || {
                    let bytes = (base + more) * MIB;
                    let grown = pool.provisioner().ensure_capacity(id, bytes).unwrap();
                    assert!(grown.capacity_bytes >= bytes);
                });
            }
        });
        let grown = pools[1].catalogue().volume(&record.id).unwrap().unwrap();
        assert_eq!(grown.capacity_bytes, (base + 32) * MIB);
        assert_eq!(fixture.image(&record.id).size().unwrap(), grown.capacity_bytes);
        until("the writer sees it", || image.size().unwrap() == grown.capacity_bytes);
    }
    let same = pools[0].provisioner().ensure_capacity(&record.id, MIB).unwrap();
    assert_eq!(same.capacity_bytes, 30 * 32 * MIB);
}

#[test]
fn a_volume_in_use_is_not_deleted_and_a_deleted_one_is_freed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let record = volume(&pool, "a", 64 * MIB);
    let image = fixture.image(&record.id);
    write(&image, 0, 1, 8 * MIB);
    let refused = pool.provisioner().ensure_no_volume(&record.id);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    drop(image);
    for _ in 0..2 {
        pool.provisioner().ensure_no_volume(&record.id).unwrap();
        assert_eq!(pool.catalogue().volume(&record.id).unwrap(), None);
    }
    until("its space is free", || fixture.is_empty());
    let gone = pool.catalogue().update_volume(&record.id, &mut |_| Ok(()));
    assert!(matches!(gone, Err(Error::NoSuchVolume(_))), "{gone:?}");
}

#[test]
fn usage_is_reported_and_zeroes_are_freed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", 64 * MIB);
    assert!(!pool.changed_blocks().holds_data(&record.id).unwrap());
    assert_eq!(pool.provisioner().used_bytes(&record.id).unwrap(), 0);
    let image = fixture.image(&record.id);
    write(&image, 0, 7, 4 * MIB);
    write(&image, 32 * MIB, 0, 4 * MIB);
    drop(image);
    assert!(pool.changed_blocks().holds_data(&record.id).unwrap());
    assert_eq!(pool.provisioner().used_bytes(&record.id).unwrap(), 8 * MIB);
    pool.provisioner().ensure_reclaimed(&record.id).unwrap();
    assert_eq!(pool.provisioner().used_bytes(&record.id).unwrap(), 4 * MIB);
    assert_eq!(crate::fixture::byte_at(&fixture.image(&record.id), 0, 4 * MIB), 7);
}
