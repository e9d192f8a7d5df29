//! Who frees deleted images. librbd ends a process by an assertion whose image another one frees.

use std::time::{Duration, Instant};

use orlop_model::Pool;

use crate::bed::{Bed, MIB, until, volume};

/// As the pool has it.
const LOCK: (&str, &str) = ("rbd_trash", "orlop.free");

#[test]
fn deleted_images_are_freed_by_one_controller_at_a_time() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open();
    pool.provisioner().ensure_no_volume(&volume(&pool, "a", 8 * MIB).id).unwrap();
    let other = bed.io();
    let (begun, lease) = (Instant::now(), Duration::from_secs(8));
    assert!(other.try_lease(LOCK.0, LOCK.1, "another", lease).unwrap());
    // Prolonged once, then its holder is killed, as far as the cluster can tell.
    assert!(other.try_lease(LOCK.0, LOCK.1, "another", lease).unwrap());
    let keeper = bed.open_with_housekeeping();
    until("all is free", || bed.trash_is_empty());
    assert!(begun.elapsed() >= lease, "freed beside another controller");
    // The lease was given back: the next one need not wait.
    until("it is let go of", || other.lock_holder(LOCK.0, LOCK.1).unwrap().is_none());
    keeper.provisioner().ensure_no_volume(&volume(&keeper, "b", 8 * MIB).id).unwrap();
    until("all is free", || bed.trash_is_empty());
}
