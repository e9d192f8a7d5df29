//! On thin pools of the kernel; in the guest of tests/guest, as nothing else has them.

mod killed;
mod random;
mod snapshots;
mod thin_devices;

use std::fs::File;

use orlop_model::{ByteRange, Error};
use orlop_sys::{thin_pool, tool};

use super::block::{SUPERBLOCK, Superblock};
use super::comparison::BatchLimits;
use super::device::MetadataDevice;
use thin_devices::{CHUNK, ThinPool, id_of};

/// A batch for each range.
const LIMITS: BatchLimits = BatchLimits { blocks: 0, ranges: 1 };

fn is_reserved(pool: &ThinPool) -> bool {
    let mut blocks = MetadataDevice::open(&pool.metadata_device()).unwrap();
    Superblock::read(&mut blocks, SUPERBLOCK).unwrap().reserved.is_some()
}

#[test]
fn metadata_is_reserved_for_no_longer_than_it_is_read() {
    let Some(mut pool) = ThinPool::new(1, 64) else { return };
    let volume = pool.create(1 << 20);
    volume.write(0, &[1; 4096]);
    let taken = pool.snapshot(&volume);
    let mut reserved = pool.metadata.reserve().unwrap();
    assert!(is_reserved(&pool) && pool.marker.join("reserved").exists());
    assert_eq!(reserved.superblock.chunk_bytes, CHUNK);
    let device = reserved.thin_device(taken).unwrap().unwrap();
    assert_eq!(device.details.mapped_chunks, 1);
    assert_eq!(reserved.thin_device(taken + 1).unwrap(), None);
    drop(reserved);
    assert!(!is_reserved(&pool) && !pool.marker.join("reserved").exists());
}

/// Of a daemon that was killed, of another program, and from before the machine was started.
#[test]
fn abandoned_reservation_is_released_and_that_of_another_program_is_not() {
    let Some(mut pool) = ThinPool::new(1, 64) else { return };
    drop(pool.metadata.reserve().unwrap());
    File::create(pool.marker.join("reserved")).unwrap();
    thin_pool::reserve_metadata_snapshot(&pool.device()).unwrap();
    pool.reopen();
    assert!(!is_reserved(&pool) && !pool.marker.join("reserved").exists());

    thin_pool::reserve_metadata_snapshot(&pool.device()).unwrap();
    pool.reopen();
    let error = pool.metadata.reserve().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
    assert!(error.to_string().contains("another program has reserved it"), "{error}");
    assert!(is_reserved(&pool));
    thin_pool::release_metadata_snapshot(&pool.device()).unwrap();
    drop(pool.metadata.reserve().unwrap());

    std::fs::remove_dir(&pool.marker).unwrap();
    thin_pool::reserve_metadata_snapshot(&pool.device()).unwrap();
    pool.reopen();
    assert!(!is_reserved(&pool));
    drop(pool.metadata.reserve().unwrap());
}

#[test]
fn reservation_that_could_not_be_released_is_before_the_next_one() {
    let Some(pool) = ThinPool::new(1, 64) else { return };
    let reserved = pool.metadata.reserve().unwrap();
    let device = pool.device();
    let elsewhere = format!("{device}-elsewhere");
    tool::run("dmsetup", ["rename", &device, &elsewhere]).unwrap();
    drop(reserved);
    tool::run("dmsetup", ["rename", &elsewhere, &device]).unwrap();
    assert!(is_reserved(&pool) && pool.marker.join("reserved").exists());
    drop(pool.metadata.reserve().unwrap());
    assert!(!is_reserved(&pool) && !pool.marker.join("reserved").exists());
}

/// It was read before, and so is in the cache that the device has for other readers than the kernel.
#[test]
fn metadata_is_read_as_it_is_on_the_disk() {
    let Some(mut pool) = ThinPool::new(1, 64) else { return };
    let volume = pool.create(1 << 20);
    for chunk in 0..4 {
        std::fs::read(pool.metadata_device()).unwrap();
        volume.write(chunk * CHUNK, &[1; 4096]);
        let taken = pool.snapshot(&volume);
        let mut reserved = pool.metadata.reserve().unwrap();
        let device = reserved.thin_device(taken).unwrap().unwrap();
        assert_eq!(device.details.mapped_chunks, chunk + 1);
    }
}

#[test]
fn device_that_is_gone_or_made_again_ends_the_ranges() {
    let Some(mut pool) = ThinPool::new(1, 64) else { return };
    let volume = pool.create(1 << 20);
    (0..4).for_each(|chunk| volume.write(2 * chunk * CHUNK, &[1; 4096]));
    let (base, target) = (pool.snapshot(&volume), pool.snapshot(&volume));
    let begun = || {
        let mut batches = pool.batches(None, target, (0, volume.bytes), LIMITS);
        assert_eq!(batches.next(), Some(Ok(Some(ByteRange { start: 0, length: CHUNK }))));
        batches
    };
    let (mut deleted, mut remade) = (begun(), begun());
    pool.send(&format!("delete {target}"));
    let missing = Error::NoSuchSnapshot(id_of(target).to_string());
    assert_eq!(deleted.next(), Some(Err(missing.clone())));
    assert_eq!(deleted.next(), None);
    pool.send(&format!("create_snap {target} {base}"));
    assert_eq!(remade.next(), Some(Err(missing)));
    assert_eq!(remade.next(), None);
    let unchanged = pool.ranges(Some(base), target, (0, volume.bytes), LIMITS);
    assert_eq!(unchanged, []);
}

/// The kernel makes the pool read-only then, and takes no messages.
#[test]
fn thin_pool_without_metadata_left_is_unreachable() {
    let Some(mut pool) = ThinPool::with_metadata(1, 64, "2m") else { return };
    let volume = pool.create(1 << 20);
    volume.write(0, &[1; 4096]);
    let taken = pool.snapshot(&volume);
    // Each takes a block of the metadata.
    let full = (5000..6000)
        .find_map(|number| thin_pool::send(&pool.device(), &format!("create_thin {number}")).err());
    assert!(full.is_some());
    let refused = pool.batches(None, taken, (0, volume.bytes), LIMITS).next().unwrap().unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("its metadata is full or damaged"), "{refused}");
    assert!(!is_reserved(&pool) && !pool.marker.join("reserved").exists());
}
