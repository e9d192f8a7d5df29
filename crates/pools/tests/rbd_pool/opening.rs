use orlop_model::{ContentSource, Error, Pool, Provisioning};
use orlop_pools::{RbdPool, RbdPoolConfig};

use crate::fixture::{
    Fixture, MIB, cluster, copy_of, create, new_snapshot, new_volume, run, snapshot, until, volume,
};
use crate::groups::group;

#[test]
fn pool_is_created_once_and_only_if_allowed() {
    let Some(fixture) = Fixture::new() else { return };
    let refused = RbdPool::open(&RbdPoolConfig { create: false, ..fixture.config() });
    assert!(matches!(refused, Err(Error::Failed { .. })), "{refused:?}");
    let ids: Vec<_> = std::thread::scope(|scope| {
        let openings: Vec<_> =
            (0..4).map(|_| scope.spawn(|| fixture.open().id().clone())).collect();
        openings.into_iter().map(|opening| opening.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let opened = RbdPool::open(&RbdPoolConfig { create: false, ..fixture.config() }).unwrap();
    assert_eq!(*opened.id(), ids[0]);
}

#[test]
fn recreated_ceph_pool_is_not_the_old_pool() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    pool.health().check().unwrap();
    let source = volume(&pool, "source", 8 * MIB);
    fixture.remove_object("orlop.pool");
    let assert_refused = || {
        assert!(pool.health().check().is_err());
        for refused in [
            create(&pool, &new_volume(&pool, "a", 8 * MIB)).map(drop),
            pool.provisioner().begin_snapshot(&new_snapshot(&pool, "s", &source)).map(drop),
        ] {
            let Err(Error::Precondition(reason)) = &refused else { panic!("{refused:?}") };
            assert!(reason.as_str().contains(pool.id().as_str()), "{reason}");
        }
    };
    assert_refused();
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    let other = fixture.open();
    assert_ne!(other.id(), pool.id());
    let source = volume(&other, "source", 8 * MIB);
    assert!(pool.health().check().is_err());
    let refused = create(&pool, &new_volume(&pool, "a", 8 * MIB));
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    other.health().check().unwrap();
    other.provisioner().ensure_no_volume(&source.id).unwrap();
}

#[test]
fn no_pool_is_created_over_volumes_without_a_header() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", 8 * MIB);
    let taken = snapshot(&pool, "s", &source);
    fixture.remove_object("orlop.pool");
    for create in [true, false] {
        let refused = RbdPool::open(&RbdPoolConfig { create, ..fixture.config() });
        let Err(Error::Damaged { reason, .. }) = refused else { panic!("{refused:?}") };
        assert!(reason.contains(pool.id().as_str()), "{reason}");
    }
    // Only the snapshot is left, among the records.
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    let refused = RbdPool::open(&fixture.config());
    let Err(Error::Damaged { reason, .. }) = refused else { panic!("{refused:?}") };

    let (_, mark) = reason.split_once("contents ").unwrap();
    let mark = &mark[..=mark.find('}').unwrap()];
    fixture.io().create("orlop.pool", mark.as_bytes()).unwrap();
    assert_eq!(fixture.open().catalogue().snapshot(&taken.id).unwrap().unwrap().id, taken.id);
}

/// An image of another pool was restored among them. With its id in the header, no other volume would be found.
#[test]
fn id_of_a_foreign_image_is_not_advised() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    for name in ["a", "b"] {
        volume(&pool, name, 8 * MIB);
    }
    let foreign = ["00000000", "ffffffff"];
    for id in foreign {
        fixture.rbd(&["create", &format!("v-{id}-{}", "0".repeat(32)), "--size", "8M"]);
    }
    let own = fixture.io().read("orlop.pool").unwrap();
    fixture.remove_object("orlop.pool");
    let refused = RbdPool::open(&fixture.config());
    let Err(Error::Damaged { reason, .. }) = refused else { panic!("{refused:?}") };
    let reason = reason.to_string();
    assert!(reason.contains(str::from_utf8(&own).unwrap()), "{reason}");
    assert!(reason.contains(&format!("{} (2)", pool.id())), "{reason}");
    for id in foreign {
        assert!(reason.contains(&format!("{id} (1)")), "{reason}");
        assert!(!reason.contains(&format!("\"{id}\"")), "{reason}");
    }
}

/// It would show an empty pool, and orchestrators take what is missing from a list for deleted.
#[test]
fn header_of_another_pool_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let own = fixture.io().read("orlop.pool").unwrap();
    let put = |text: &[u8]| {
        fixture.remove_object("orlop.pool");
        fixture.io().create("orlop.pool", text).unwrap();
    };
    let source = volume(&pool, "a", 8 * MIB);
    let taken = snapshot(&pool, "s", &source);
    let other = br#"{"format":1,"id":"0123abcd","kind":"rbd"}"#;
    put(other);
    let assert_refused = || {
        let refused = RbdPool::open(&fixture.config());
        let Err(Error::Damaged { reason, .. }) = refused else { panic!("{refused:?}") };
        assert!(reason.contains(str::from_utf8(&own).unwrap()), "{reason}");
    };
    assert_refused();
    // Only the snapshot is left, among the records.
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    assert_refused();
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    put(&own);
    volume(&pool, "b", 8 * MIB);
    // An image that was restored here from another pool is in nothing's way.
    fixture.rbd(&["create", "v-0123abcd-00000000000000000000000000000000", "--size", "8M"]);
    assert_eq!(fixture.open().id(), pool.id());
}

/// Foreign images are not Orlop's, and a daemon killed before the pool header left empty records.
#[test]
fn pool_is_created_beside_foreign_images() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.rbd(&["create", "v-of-another", "--size", "8M"]);
    fixture.io().ensure_object("orlop.records").unwrap();
    fixture.open().health().check().unwrap();
}

#[test]
fn lost_records_are_damage_not_an_empty_list() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", 8 * MIB);
    let taken = snapshot(&pool, "s", &source);
    fixture.remove_object("orlop.records");
    let damaged = |outcome: Result<(), Error>| {
        assert!(matches!(outcome, Err(Error::Damaged { .. })), "{outcome:?}");
    };
    damaged(pool.catalogue().snapshots(None, 0).map(drop));
    damaged(pool.catalogue().snapshots(None, 1).map(drop));
    damaged(pool.catalogue().snapshot(&taken.id).map(drop));
    damaged(pool.provisioner().begin_snapshot(&new_snapshot(&pool, "t", &source)).map(drop));
    damaged(pool.provisioner().ensure_no_snapshot(&taken.id));
    damaged(pool.catalogue().volume_groups(None, 0).map(drop));
    damaged(pool.provisioner().ensure_no_volume(&source.id));
    damaged(pool.health().check());
    assert_eq!(pool.catalogue().volume(&source.id).unwrap().unwrap().id, source.id);
}

/// Volumes are listed from it, and orchestrators take what is missing from a list for deleted.
#[test]
fn a_lost_directory_is_damage_and_no_empty_list() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", 8 * MIB);
    let taken = snapshot(&pool, "s", &source);
    fixture.remove_object("rbd_directory");
    for emptied in [false, true] {
        if emptied {
            fixture.io().ensure_object("rbd_directory").unwrap();
        }
        let damaged = |outcome: Result<(), Error>| {
            assert!(matches!(outcome, Err(Error::Damaged { .. })), "{emptied}: {outcome:?}");
        };
        damaged(pool.catalogue().volumes(None, 0).map(drop));
        damaged(pool.catalogue().volumes(None, 1).map(drop));
        damaged(pool.health().check());
        damaged(create(&pool, &new_volume(&pool, "b", 8 * MIB)).map(drop));
        assert_eq!(pool.catalogue().volume(&source.id).unwrap().unwrap().id, source.id);
    }
    // All volumes may be deleted, and snapshots of them be left.
    let image = fixture.io().image_id(&source.id.to_string()).unwrap().unwrap();
    assert!(fixture.io().ensure_directory_entry(&source.id.to_string(), &image).unwrap());
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    assert_eq!(pool.catalogue().volumes(None, 0).unwrap(), []);
    pool.health().check().unwrap();
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
}

#[test]
fn denied_access_is_reported_without_the_key() {
    let Some(fixture) = Fixture::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let keyring = directory.path().join("keyring");
    let wrong = "AQDNxyVnAAAAABAAZ0mZGZ3dWkZ0mZGZ3dWkZw==";
    std::fs::write(&keyring, format!("[client.orlop]\n\tkey = {wrong}\n")).unwrap();
    let refused = RbdPool::open(&RbdPoolConfig { keyring, ..fixture.config() }).unwrap_err();
    assert!(refused.to_string().contains("may not"), "{refused}");
    assert!(!refused.to_string().contains(wrong), "{refused}");

    let nowhere = RbdPoolConfig { pool: "no-such-pool".to_owned(), ..fixture.config() };
    let refused = RbdPool::open(&nowhere).unwrap_err();
    assert!(refused.to_string().contains("no-such-pool"), "{refused}");

    let nowhere = RbdPoolConfig { namespace: "no-such-space".to_owned(), ..fixture.config() };
    let refused = RbdPool::open(&nowhere).unwrap_err();
    assert!(refused.to_string().contains("no namespace no-such-space"), "{refused}");
}

#[test]
fn a_user_with_rights_to_one_namespace_can_do_all_there() {
    let Some(fixture) = Fixture::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let keyring = directory.path().join("keyring");
    let key = keyring.to_str().unwrap();
    let scope = format!("profile rbd pool=rbd namespace={}", fixture.namespace);
    let user = ["auth", "get-or-create", "client.narrow", "mon", "profile rbd"];
    run("ceph", &[&user[..], &["mgr", &scope, "osd", &scope, "-o", key]].concat());
    let config = RbdPoolConfig {
        user: "narrow".to_owned(),
        keyring: keyring.clone(),
        collects_garbage: true,
        ..fixture.config()
    };
    let pool = RbdPool::open(&config).unwrap();
    let source = volume(&pool, "a", 8 * MIB);
    let taken = snapshot(&pool, "s", &source);
    let copy = copy_of(&pool, "b", ContentSource::Snapshot(taken.id.clone()), 16 * MIB).unwrap();
    let together = group(&pool, "g", &[&source, &copy]);
    assert!(pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes > 0);
    pool.provisioner().ensure_capacity(&source.id, 16 * MIB).unwrap();
    for id in [&source.id, &copy.id] {
        pool.provisioner().ensure_no_volume(id).unwrap();
    }
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    pool.provisioner().ensure_no_group_snapshot(&together.id).unwrap();
    until("all is free", || fixture.is_empty());

    let elsewhere = RbdPoolConfig { namespace: String::new(), ..config };
    let refused = RbdPool::open(&elsewhere).unwrap_err();
    assert!(refused.to_string().contains("may not"), "{refused}");
}

#[test]
fn missing_cluster_is_unreachable() {
    let Some(fixture) = Fixture::new() else { return };
    // The port of discard, where nothing listens.
    let unreachable = RbdPoolConfig { monitors: "[v2:127.0.0.1:9]".to_owned(), ..fixture.config() };
    let away = RbdPool::open(&unreachable);
    assert!(matches!(away, Err(Error::Unreachable { .. })), "{away:?}");
}

/// As a copy of another pool is, by its id.
#[test]
fn pool_with_a_refused_id_is_unchanged() {
    let Some(fixture) = Fixture::new() else { return };
    let id = fixture.open().id().clone();
    let objects = || {
        let place = ["--pool", "rbd", "--namespace", &fixture.namespace];
        let listed = run("rados", &[&place[..], &["ls"]].concat());
        listed.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let before = objects();
    let config = RbdPoolConfig { serves_node: true, collects_garbage: true, ..fixture.config() };
    let refused = RbdPool::open_if(&config, |found| {
        assert_eq!(*found, id);
        Err(Error::failed("open it", "one is a copy of the other"))
    });
    assert!(matches!(refused, Err(Error::Failed { .. })), "{refused:?}");
    assert_eq!(objects(), before);
    drop(RbdPool::open(&config).unwrap());
    assert_ne!(objects(), before, "nothing would have changed");
}

/// Its manager counts what is in a new pool only after a few seconds.
#[test]
fn capacity_of_a_new_ceph_pool_is_waited_for() {
    let Some(fixture) = Fixture::new() else { return };
    let name = format!("new-{}", fixture.namespace);
    run("ceph", &["osd", "pool", "create", &name, "1"]);
    let config = RbdPoolConfig {
        pool: name.clone(),
        namespace: String::new(),
        user: "admin".to_owned(),
        keyring: cluster().join("client.admin.keyring"),
        ..fixture.config()
    };
    let pool = RbdPool::open(&config).unwrap();
    let capacity = pool.provisioner().capacity(Provisioning::Thin);
    drop(pool);
    run("ceph", &["osd", "pool", "rm", &name, &name, "--yes-i-really-really-mean-it"]);
    assert!(capacity.unwrap().available_bytes > 0);
}
