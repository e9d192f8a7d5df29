//! A thin pool whose data fills up: what is refused before, what writers get, and what brings it back.

use std::fs::File;

use orlop_model::{Error, Provisioner, VolumeRecord};
use rustix::io::Errno;

use super::fixture::{Pool, check, fill, try_fill};
use crate::image::Floor;
use crate::lvm::testbed::{MIB, Testbed};

const SIZE: u64 = 64 * MIB;

fn exhausted(result: Result<impl std::fmt::Debug, Error>) -> String {
    match result {
        Err(Error::Exhausted(reason)) => reason.as_str().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// Until a write fails; with what it failed, and how far it came.
fn fill_up(device: &File, seed: u8, from: u64) -> (std::io::Error, u64) {
    for at in (from..SIZE).step_by(1 << 20) {
        if let Err(error) = try_fill(device, seed, at, at + MIB) {
            return (error, at);
        }
    }
    panic!("all was written");
}

fn overcommitted() -> Option<Pool> {
    let bed = Testbed::with_devices(1)?;
    bed.create_thin_pool("tp", SIZE);
    bed.run("lvchange", &["--errorwhenfull", "y", &format!("{}/tp", bed.group)]);
    let mut config = bed.config(true);
    config.floor = Floor::Percent(25);
    config.overcommit_percent = 1000;
    Some(Pool::open(bed, config))
}

/// Three volumes; one of them is written until the pool is full.
fn filled(pool: &Pool) -> ([VolumeRecord; 3], File, u64) {
    let volumes = ["a", "b", "c"].map(|name| pool.thin(name, SIZE));
    for (seed, volume) in [(2, &volumes[1]), (3, &volumes[2])] {
        fill(&pool.device(&volume.id), seed, 0, 12 * MIB);
    }
    let device = pool.device(&volumes[0].id);
    fill(&device, 1, 0, 20 * MIB);
    assert_eq!(pool.opened.capacity.shortage().unwrap(), None);
    let available = || pool.opened.capacity.space().unwrap().available;
    assert!(available() > 0);

    // Below its floor of 16 MiB, and a quarter before the end.
    fill(&device, 1, 20 * MIB, 26 * MIB);
    let short = exhausted(pool.try_thin("d", MIB));
    assert!(short.contains("below its floor") && short.contains("fstrim"), "{short}");
    assert_eq!(exhausted(pool.try_snapshot("s", &volumes[1]).map(drop)), short);
    let grown = pool.opened.provisioner.ensure_capacity(&volumes[1].id, SIZE + MIB);
    assert_eq!(exhausted(grown), short);
    assert_eq!(pool.opened.capacity.shortage().unwrap(), Some(short));
    assert_eq!(available(), 0);
    exhausted(pool.opened.capacity.check_takes(&volumes[0].id, 30 * MIB));

    let (error, end) = fill_up(&device, 1, 26 * MIB);
    // ENOSPC where the page cache is not between.
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{error}");
    assert!(end >= 38 * MIB, "{end}");
    (volumes, device, end)
}

#[test]
fn writers_of_a_full_pool_get_errors_and_go_on_after_a_deletion() {
    let Some(pool) = overcommitted() else { return };
    let ([a, b, c], device, end) = filled(&pool);
    // What is allocated already can be written.
    fill(&device, 4, 0, 2 * MIB);
    fill(&pool.device(&b.id), 2, 4 * MIB, 8 * MIB);
    pool.delete(&c.id);
    fill(&device, 1, end, end + 8 * MIB);
    check(&device, 4, 0, 2 * MIB);
    check(&device, 1, 2 * MIB, end + 8 * MIB);
    check(&pool.device(&b.id), 2, 0, 12 * MIB);
    drop(device);
    pool.delete(&a.id);
    assert_eq!(pool.opened.capacity.shortage().unwrap(), None);
    pool.thin("d", MIB);
}

#[test]
fn writers_of_a_full_pool_go_on_after_an_extension() {
    let Some(pool) = overcommitted() else { return };
    let ([_, b, c], device, end) = filled(&pool);
    pool.bed.run("lvextend", &["--size", "+64m", &format!("{}/tp", pool.bed.group)]);
    fill(&device, 1, end, SIZE);
    check(&device, 1, 0, SIZE);
    for (seed, volume) in [(2, &b), (3, &c)] {
        check(&pool.device(&volume.id), seed, 0, 12 * MIB);
    }
    pool.try_snapshot("s", &b).unwrap();
}
