//! Volumes and snapshots of a pool.

use std::fs::File;
use std::os::unix::fs::FileExt;

use orlop_model::{
    ByteRange, ChangedBlocks, ContentSource, Error, Footprint, Pool, Provisioner, Provisioning,
    SnapshotId, SnapshotRecord, VolumeId, VolumeRecord,
};
use orlop_sys::{thin_pool, tool};

use super::thin_devices::CHUNK;
use crate::lvm::testbed::{MIB, TestPool};

const BLOCK: u64 = 4096;

fn write(pool: &TestPool, id: &VolumeId, at: u64, byte: u8) {
    let device = File::options().write(true).open(pool.attach(id)).unwrap();
    device.write_all_at(&[byte; 4096], at).unwrap();
    device.sync_all().unwrap();
}

fn discard(pool: &TestPool, id: &VolumeId, at: u64, length: u64) {
    let device = pool.attach(id).display().to_string();
    let (at, length) = (at.to_string(), length.to_string());
    tool::run("blkdiscard", ["--offset", &at, "--length", &length, &device]).unwrap();
}

fn changes(pool: &TestPool) -> &dyn ChangedBlocks {
    pool.opened.changed_blocks()
}

fn allocated(pool: &TestPool, of: &SnapshotRecord, start: u64) -> Vec<ByteRange> {
    let ranges = changes(pool).allocated_ranges(&of.id, start).unwrap();
    ranges.filter_map(Result::unwrap).collect()
}

fn changed(
    pool: &TestPool,
    base: &SnapshotRecord,
    target: &SnapshotRecord,
    start: u64,
) -> Vec<ByteRange> {
    let ranges = changes(pool).changed_ranges(&base.id, &target.id, start).unwrap();
    ranges.filter_map(Result::unwrap).collect()
}

fn range(start: u64, length: u64) -> ByteRange {
    ByteRange { start, length }
}

/// As a volume made from it shows it.
fn data_of(pool: &TestPool, snapshot: &SnapshotRecord) -> Vec<u8> {
    let source = ContentSource::Snapshot(snapshot.id.clone());
    let copy = pool.copy("reads", snapshot.size_bytes, source).unwrap();
    let mut data = vec![0; usize::try_from(snapshot.size_bytes).unwrap()];
    File::open(pool.attach(&copy.id)).unwrap().read_exact_at(&mut data, 0).unwrap();
    pool.provisioner().ensure_no_volume(&copy.id).unwrap();
    data
}

fn filled(mut data: Vec<u8>, target: &[u8], ranges: &[ByteRange]) -> Vec<u8> {
    data.resize(target.len(), 0);
    for range in ranges {
        let span = usize::try_from(range.start).unwrap()..usize::try_from(range.end()).unwrap();
        data[span.clone()].copy_from_slice(&target[span]);
    }
    data
}

#[test]
fn changes_of_a_volume_rebuild_its_snapshots() {
    let Some(pool) = TestPool::new(128 * MIB) else { return };
    // LVM rounds it up to 12 MiB.
    let size = 10 * MIB + BLOCK;
    let volume = pool.create("a", size);
    write(&pool, &volume.id, 0, 1);
    write(&pool, &volume.id, 5 * CHUNK, 2);
    write(&pool, &volume.id, 6 * CHUNK, 3);
    write(&pool, &volume.id, size - BLOCK, 4);
    let base = pool.snapshot("base", &volume).unwrap();
    assert_eq!(
        allocated(&pool, &base, 0),
        [range(0, CHUNK), range(5 * CHUNK, 2 * CHUNK), range(10 * MIB, BLOCK)]
    );
    assert_eq!(allocated(&pool, &base, 6 * CHUNK + 1)[0], range(6 * CHUNK + 1, CHUNK - 1));
    assert_eq!(allocated(&pool, &base, size - 1), [range(size - 1, 1)]);
    assert_eq!(allocated(&pool, &base, size), []);
    assert_eq!(changed(&pool, &base, &base, 0), []);

    let grown = pool.provisioner().ensure_capacity(&volume.id, 20 * MIB).unwrap();
    pool.opened.devices().refresh_device(&volume.id).unwrap();
    write(&pool, &volume.id, 5 * CHUNK + BLOCK, 5);
    write(&pool, &volume.id, 9 * CHUNK, 6);
    write(&pool, &volume.id, size, 7);
    write(&pool, &volume.id, 20 * MIB - BLOCK, 8);
    discard(&pool, &volume.id, 0, CHUNK);
    let target = pool.snapshot("target", &grown).unwrap();
    write(&pool, &volume.id, 100 * CHUNK, 9);
    let expected = [
        range(0, CHUNK),
        range(5 * CHUNK, CHUNK),
        range(9 * CHUNK, CHUNK),
        range(10 * MIB, CHUNK),
        range(20 * MIB - CHUNK, CHUNK),
    ];
    assert_eq!(changed(&pool, &base, &target, 0), expected);
    assert_eq!(changed(&pool, &base, &target, 7 * CHUNK), expected[2..]);

    let pool = pool.reopen();
    let (before, after) = (data_of(&pool, &base), data_of(&pool, &target));
    assert!(before != after[..before.len()] && after[0] == 0 && before[0] == 1);
    assert!(filled(before, &after, &changed(&pool, &base, &target, 0)) == after);
    assert!(filled(Vec::new(), &after, &allocated(&pool, &target, 0)) == after);

    // They do not need their volume.
    pool.detach(&volume.id);
    pool.provisioner().ensure_no_volume(&volume.id).unwrap();
    assert_eq!(changed(&pool, &base, &target, 0), expected);
}

#[test]
fn volume_holds_data_while_anything_is_mapped() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let volume = pool.create("a", 8 * MIB);
    assert_eq!(changes(&pool).holds_data(&volume.id), Ok(false));
    pool.attach(&volume.id);
    assert_eq!(changes(&pool).holds_data(&volume.id), Ok(false));
    write(&pool, &volume.id, 3 * MIB, 1);
    assert_eq!(changes(&pool).holds_data(&volume.id), Ok(true));
    // To stage a volume waits for no reader of the metadata.
    let device = format!("{}-tpool", pool.bed.lvm().group().device_name("tp"));
    thin_pool::reserve_metadata_snapshot(&device).unwrap();
    assert_eq!(changes(&pool).holds_data(&volume.id), Ok(true));
    thin_pool::release_metadata_snapshot(&device).unwrap();
    pool.detach(&volume.id);
    assert_eq!(changes(&pool).holds_data(&volume.id), Ok(true));
    discard(&pool, &volume.id, 0, 8 * MIB);
    assert_eq!(changes(&pool).holds_data(&volume.id), Ok(false));
    let unknown = changes(&pool).holds_data(&pool.volume_id("b"));
    assert!(matches!(unknown, Err(Error::NoSuchVolume(_))), "{unknown:?}");
}

#[test]
fn thick_volume_holds_what_is_found_in_it() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let mut new = pool.new_volume("a", 8 * MIB, None);
    new.parameters.provisioning = Provisioning::Thick;
    let volume = pool.provisioner().begin_volume(&new).unwrap().commit().unwrap();
    pool.attach(&volume.id);
    assert_eq!(changes(&pool).holds_data(&volume.id), Ok(false));
    write(&pool, &volume.id, 8 * MIB - BLOCK, 1);
    assert_eq!(changes(&pool).holds_data(&volume.id), Ok(true));
    let of = ContentSource::Volume(volume.id);
    assert_eq!(footprints(&pool, &[of]), [(128, 128)]);
}

fn footprints(pool: &TestPool, of: &[ContentSource]) -> Vec<(u64, u64)> {
    let chunks = |of| {
        let Footprint { taken, exclusive } = changes(pool).footprint(of).unwrap().unwrap();
        (taken / CHUNK, exclusive / CHUNK)
    };
    of.iter().map(chunks).collect()
}

#[test]
fn footprint_tells_what_deleting_gives_back() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let volume = pool.create("a", 8 * MIB);
    (0..3).for_each(|chunk| write(&pool, &volume.id, chunk * CHUNK, 1));
    let of_volume = ContentSource::Volume(volume.id.clone());
    assert_eq!(footprints(&pool, std::slice::from_ref(&of_volume)), [(3, 3)]);
    let taken = pool.snapshot("s", &volume).unwrap();
    let both = [of_volume, ContentSource::Snapshot(taken.id.clone())];
    assert_eq!(footprints(&pool, &both), [(3, 0), (3, 0)]);
    write(&pool, &volume.id, CHUNK, 2);
    write(&pool, &volume.id, 9 * CHUNK, 2);
    assert_eq!(footprints(&pool, &both), [(4, 2), (3, 1)]);
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    assert_eq!(footprints(&pool, &both[..1]), [(4, 4)]);
}

fn first(pool: &TestPool, ranges: orlop_model::Ranges) -> Option<Error> {
    let mut ranges = ranges;
    let first = ranges.next().unwrap();
    assert!(ranges.next().is_none() || first.is_ok());
    assert!(pool.opened.health().check().is_ok());
    first.err()
}

/// LVM gives the number of the newest thin device, once that is removed, to the next one.
#[test]
fn deleted_snapshot_is_missing_and_not_mistaken_for_another() {
    let Some(pool) = TestPool::new(64 * MIB) else { return };
    let unknown = changes(&pool).allocated_ranges(&pool.snapshot_id("none"), 0).err();
    assert!(matches!(unknown, Some(Error::NoSuchSnapshot(_))), "{unknown:?}");
    let volume: VolumeRecord = pool.create("a", 8 * MIB);
    write(&pool, &volume.id, 0, 1);
    let base = pool.snapshot("base", &volume).unwrap();
    let number = |id: &SnapshotId| pool.opened.lvm.report().unwrap().thin_id(&id.to_string());
    let remade = |with: &str| {
        let taken = pool.snapshot("s", &volume).unwrap();
        let before = number(&taken.id);
        let ranges = changes(&pool).changed_ranges(&base.id, &taken.id, 0).unwrap();
        pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
        let other = pool.snapshot(with, &volume).unwrap();
        assert_eq!(number(&other.id), before, "the number is used again");
        let error = first(&pool, ranges);
        pool.provisioner().ensure_no_snapshot(&other.id).unwrap();
        error
    };
    let error = remade("other");
    assert!(matches!(error, Some(Error::NoSuchSnapshot(_))), "{error:?}");
    // One of the same name is another one, too.
    let error = remade("s");
    assert!(matches!(error, Some(Error::Busy { .. })), "{error:?}");
}
