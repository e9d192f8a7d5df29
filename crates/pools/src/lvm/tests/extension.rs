//! A thin pool that is enlarged before it is full.

use std::time::{Duration, Instant};

use orlop_model::{Error, Provisioning};

use super::fixture::{Pool, check, fill};
use crate::lvm::extension::Extension;
use crate::lvm::making::ThinPoolSize;
use crate::lvm::testbed::{LIMIT, MIB, Testbed};

/// Of a pool of 64 MiB in 256 MiB.
fn extended(extension: Extension, overcommit_percent: u32) -> Option<Pool> {
    let bed = Testbed::with_devices(1)?;
    bed.create_thin_pool("tp", 64 * MIB);
    let mut config = bed.config(true);
    config.overcommit_percent = overcommit_percent;
    config.extension = Some(extension);
    Some(Pool::open(bed, config))
}

fn size(pool: &Pool) -> u64 {
    pool.opened.lvm.report().unwrap().lv("tp").unwrap().size
}

#[test]
fn pool_grows_in_steps_while_it_is_written_and_for_new_volumes() {
    let by = ThinPoolSize::Percent(25);
    let extension = Extension { at_percent: 80, by, limit: Some(128 * MIB) };
    let Some(pool) = extended(extension, 100) else { return };
    let available = || pool.opened.capacity.available(Provisioning::Thin).unwrap().available_bytes;
    assert_eq!(available(), 128 * MIB, "what it may grow to");
    let first = pool.thin("a", 64 * MIB);
    pool.opened.capacity.watch().unwrap();
    assert_eq!(size(&pool), 64 * MIB, "a promise needs no space yet");
    let device = pool.device(&first.id);
    fill(&device, 1, 0, 56 * MIB);
    pool.opened.capacity.watch().unwrap();
    assert_eq!(size(&pool), 80 * MIB);

    // What is promised is there, whatever else takes the extents.
    let second = pool.thin("b", 40 * MIB);
    assert_eq!(size(&pool), 104 * MIB);
    let refused = pool.try_thin("c", 25 * MIB);
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    assert_eq!(size(&pool), 104 * MIB, "it is not enlarged for what is refused anyway");
    pool.thin("c", 24 * MIB);
    assert_eq!((size(&pool), available()), (128 * MIB, 0));
    fill(&device, 1, 56 * MIB, 64 * MIB);
    let other = pool.device(&second.id);
    fill(&other, 2, 0, 40 * MIB);
    assert!(pool.opened.capacity.watch().is_ok());
    assert_eq!(size(&pool), 128 * MIB, "the limit");
    check(&device, 1, 0, 64 * MIB);
    check(&other, 2, 0, 40 * MIB);
}

/// While it is in use; the data has its limit. The kernel counts a tenth of it as used, for what it needs to end in order.
#[test]
fn metadata_grows_by_itself() {
    let extension =
        Extension { at_percent: 11, by: ThinPoolSize::Percent(20), limit: Some(64 * MIB) };
    let Some(pool) = extended(extension, 100) else { return };
    let volume = pool.thin("a", 64 * MIB);
    let device = pool.device(&volume.id);
    fill(&device, 1, 0, 16 * MIB);
    let used = || {
        let space = pool.opened.capacity.space().unwrap();
        (space.metadata_used.unwrap() * 100, space.metadata_size.unwrap())
    };
    pool.opened.capacity.watch().unwrap();
    let (used, size) = used();
    assert!(size > 4 * MIB && used <= size * 11, "{used} of {size}");
    fill(&device, 1, 16 * MIB, 32 * MIB);
    check(&device, 1, 0, 32 * MIB);
}

/// Without any call: the thread does it, and writers wait for that.
#[test]
fn writers_of_a_pool_that_grows_notice_nothing() {
    let by = ThinPoolSize::Bytes(32 * MIB);
    let extension = Extension { at_percent: 80, by, limit: None };
    let Some(pool) = extended(extension, 1000) else { return };
    let volumes = ["a", "b"].map(|name| pool.thin(name, 60 * MIB));
    for (seed, volume) in [(1, &volumes[0]), (2, &volumes[1])] {
        fill(&pool.device(&volume.id), seed, 0, 60 * MIB);
    }
    let deadline = Instant::now() + LIMIT;
    while size(&pool) < 160 * MIB {
        assert!(Instant::now() < deadline, "{}", size(&pool));
        std::thread::sleep(Duration::from_millis(100));
    }
    pool.opened.watch.stop();
    for (seed, volume) in [(1, &volumes[0]), (2, &volumes[1])] {
        check(&pool.device(&volume.id), seed, 0, 60 * MIB);
    }
}
