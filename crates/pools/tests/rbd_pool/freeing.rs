//! Who frees deleted images. librbd ends a process by an assertion whose image another one frees.

use std::time::{Duration, Instant};

use orlop_model::Pool;

use crate::fixture::{Fixture, MIB, run, until, volume};

/// As the pool has it.
const LOCK: (&str, &str) = ("rbd_trash", "orlop.free");

#[test]
fn deleted_images_are_freed_by_one_controller_at_a_time() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    pool.provisioner().ensure_no_volume(&volume(&pool, "a", 8 * MIB).id).unwrap();
    let other = fixture.io();
    let (begun, lease) = (Instant::now(), Duration::from_secs(8));
    assert!(other.try_lease(LOCK.0, LOCK.1, "another", lease).unwrap());
    // Prolonged once, then its holder is killed, as far as the cluster can tell.
    assert!(other.try_lease(LOCK.0, LOCK.1, "another", lease).unwrap());
    let collector = fixture.open_collecting_garbage();
    until("all is free", || fixture.trash_is_empty());
    assert!(begun.elapsed() >= lease, "freed beside another controller");
    // The lease was given back: the next one need not wait.
    until("the lock is released", || other.lock_holder(LOCK.0, LOCK.1).unwrap().is_none());
    collector.provisioner().ensure_no_volume(&volume(&collector, "b", 8 * MIB).id).unwrap();
    until("all is free", || fixture.trash_is_empty());
}

/// librbd ends a controller by an assertion if `rbd trash purge` frees the same image at that moment.
#[test]
fn a_purge_of_the_trash_leaves_what_orlop_frees() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    pool.provisioner().ensure_no_volume(&volume(&pool, "a", 8 * MIB).id).unwrap();
    let path = format!("rbd/{}", fixture.namespace);
    run("rbd", &["trash", "purge", "--no-progress", &path]);
    assert!(!fixture.trash_is_empty());
    let _collector = fixture.open_collecting_garbage();
    until("all is free", || fixture.trash_is_empty());
}
