use fastrand::Rng;
use orlop_model::{ByteRange, ContentSource, Pool, Ranges, SnapshotId};
use orlop_sys::ceph::{Access, Image, SnapshotRef};

use crate::fixture::{Fixture, MIB, OBJECT, copy_of, read, snapshot, volume, write};

const SIZE: u64 = 48 * MIB;
const BLOCK: usize = 4096;

fn all(ranges: Ranges) -> Vec<ByteRange> {
    let ranges: Vec<_> = ranges.filter_map(|range| range.unwrap()).collect();
    assert!(ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start), "{ranges:?}");
    assert!(ranges.iter().all(|range| range.length > 0), "{ranges:?}");
    ranges
}

fn holds(ranges: &[ByteRange], offset: u64) -> bool {
    ranges.iter().any(|range| range.start <= offset && offset < range.end())
}

fn opened(fixture: &Fixture, image: &str, snapshot: &str) -> Image {
    fixture
        .io()
        .open_image_by_id(image, Some(SnapshotRef::Name(snapshot)), Access::ReadOnly)
        .unwrap()
}

/// Where the cluster keeps the data of a snapshot.
fn place(fixture: &Fixture, id: &SnapshotId) -> (String, String) {
    let text = fixture.io().omap_get("orlop.records", &id.to_string()).unwrap().unwrap();
    let entry: serde_json::Value = serde_json::from_slice(&text).unwrap();
    (entry["image"].as_str().unwrap().to_owned(), entry["snapshot"].as_str().unwrap().to_owned())
}

/// Writes and discards of all lengths, at the edges of objects and within.
fn disturb(image: &Image, rng: &mut Rng) {
    for _ in 0..8 {
        let offset = rng.u64(..SIZE / 4096) * 4096;
        let length = ((1 + rng.u64(..2048)) * 4096).min(SIZE - offset);
        match rng.u64(..3) {
            0 => image.discard(offset, length).unwrap(),
            _ => write(image, offset, rng.u8(1..), length),
        }
    }
    let object = rng.u64(..SIZE / OBJECT) * OBJECT;
    image.discard(object, OBJECT).unwrap();
    // Cuts an object short.
    let object = rng.u64(..SIZE / OBJECT) * OBJECT;
    write(image, object, 3, OBJECT);
    image.discard(object + OBJECT / 2, OBJECT / 2).unwrap();
    image.flush().unwrap();
}

#[test]
fn every_difference_between_snapshots_is_listed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let original = volume(&pool, "original", SIZE);
    let mut rng = Rng::with_seed(7);
    disturb(&fixture.image(&original.id), &mut rng);
    // A copy, so that some of the data is its parent's.
    let source = ContentSource::Volume(original.id);
    let source = copy_of(&pool, "copy", source, SIZE).unwrap();
    let image = fixture.image(&source.id);
    let mut snapshots = Vec::new();
    for turn in 0..4 {
        let record = snapshot(&pool, &format!("s{turn}"), &source);
        let (image_id, name) = place(&fixture, &record.id);
        snapshots.push((record, read(&opened(&fixture, &image_id, &name), 0, SIZE)));
        disturb(&image, &mut rng);
    }
    for (turn, (target, later)) in snapshots.iter().enumerate() {
        let allocated = all(pool.changed_blocks().allocated_ranges(&target.id, 0).unwrap());
        for (block, offset) in later.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
            let zero = block == [0; BLOCK];
            assert!(zero || holds(&allocated, offset), "data of {turn} at {offset}");
        }
        for (base, earlier) in &snapshots[..turn] {
            let changed =
                all(pool.changed_blocks().changed_ranges(&base.id, &target.id, 0).unwrap());
            let blocks = earlier.chunks(BLOCK).zip(later.chunks(BLOCK));
            for ((before, after), offset) in blocks.zip((0..).step_by(BLOCK)) {
                let same = before == after;
                assert!(same || holds(&changed, offset), "change of {turn} at {offset}");
            }
        }
    }
}

#[test]
fn only_written_ranges_are_reported_from_any_offset() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", SIZE);
    let image = fixture.image(&source.id);
    write(&image, 0, 1, 4096);
    write(&image, 32 * MIB, 1, 4096);
    let base = snapshot(&pool, "s1", &source);
    write(&image, 32 * MIB, 2, 4096);
    write(&image, 36 * MIB, 2, 4096);
    let target = snapshot(&pool, "s2", &source);

    let object = |n: u64| ByteRange { start: n * OBJECT, length: OBJECT };
    let two = ByteRange { start: 32 * MIB, length: 2 * OBJECT };
    assert_eq!(
        all(pool.changed_blocks().allocated_ranges(&base.id, 0).unwrap()),
        [object(0), object(8)]
    );
    assert_eq!(
        all(pool.changed_blocks().allocated_ranges(&target.id, 0).unwrap()),
        [object(0), two]
    );
    assert_eq!(all(pool.changed_blocks().changed_ranges(&base.id, &target.id, 0).unwrap()), [two]);
    assert_eq!(all(pool.changed_blocks().changed_ranges(&base.id, &base.id, 0).unwrap()), []);
    let rest = all(pool.changed_blocks().changed_ranges(&base.id, &target.id, 37 * MIB).unwrap());
    assert!(holds(&rest, 37 * MIB) && rest.len() == 1, "{rest:?}");
    assert_eq!(all(pool.changed_blocks().changed_ranges(&base.id, &target.id, SIZE).unwrap()), []);
}

#[test]
fn recreated_volume_counts_as_fully_changed() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let base = snapshot(&pool, "s1", &volume(&pool, "a", SIZE));
    pool.provisioner().ensure_no_volume(&base.source).unwrap();
    let target = snapshot(&pool, "s2", &volume(&pool, "a", SIZE));
    let changed = all(pool.changed_blocks().changed_ranges(&base.id, &target.id, MIB).unwrap());
    assert_eq!(changed, [ByteRange { start: MIB, length: SIZE - MIB }]);
}
