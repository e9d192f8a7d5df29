//! What copies hold, byte by byte.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Of a different sequence for each seed.
fn random_bytes(seed: u64, length: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(next).collect()
}

fn write_all(pool: &Pool, id: &VolumeId, content: &[u8]) {
    let device = File::options().write(true).open(pool.attach(id)).unwrap();
    device.write_all_at(content, 0).unwrap();
    device.sync_all().unwrap();
}

/// All of what the volume shows.
fn read_all(pool: &Pool, id: &VolumeId) -> Vec<u8> {
    let bytes = std::fs::read(pool.attach(id)).unwrap();
    pool.detach(id);
    bytes
}

#[test]
fn larger_copy_has_every_byte_of_the_snapshot_and_zeroes_after_them() {
    let Some(pool) = Pool::new(192 * MIB) else { return };
    // LVM makes 8 MiB of it, which the volume does not show.
    let size = 5 * MIB;
    let (first, second) = (random_bytes(1, size), random_bytes(2, size));
    let source = pool.create("a", size);
    write_all(&pool, &source.id, &first);
    let taken = pool.snapshot("s", &source).unwrap();
    write_all(&pool, &source.id, &second);
    let of_snapshot = || ContentSource::Snapshot(taken.id.clone());
    let same = pool.copy("same", size, of_snapshot()).unwrap();
    let larger = pool.copy("larger", 13 * MIB, of_snapshot()).unwrap();
    let of_volume = ContentSource::Volume(source.id.clone());
    let of_volume = pool.copy("of volume", 9 * MIB, of_volume).unwrap();
    pool.detach(&source.id);
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();

    assert!(read_all(&pool, &same.id) == first);
    let padded = |content: &[u8], length: u64| {
        let mut padded = content.to_vec();
        padded.resize(usize::try_from(length).unwrap(), 0);
        padded
    };
    assert!(read_all(&pool, &larger.id) == padded(&first, 13 * MIB));
    assert!(read_all(&pool, &of_volume.id) == padded(&second, 9 * MIB));
    // Growth shows zeroes as well, where a larger volume was written before.
    pool.provisioner().ensure_capacity(&same.id, 11 * MIB).unwrap();
    assert!(read_all(&pool, &same.id) == padded(&first, 11 * MIB));
}

/// One after the other gets the next number, so in no instant is one of them ahead by two.
#[test]
fn members_of_a_group_snapshot_are_of_one_instant() {
    let Some(pool) = Pool::new(128 * MIB) else { return };
    let volumes = ["a", "b", "c"].map(|name| pool.create(name, 8 * MIB));
    let devices = [0, 1, 2].map(|index: usize| {
        File::options().write(true).open(pool.attach(&volumes[index].id)).unwrap()
    });
    let stop = AtomicBool::new(false);
    let groups = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1_u64.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                for device in &devices {
                    device.write_all_at(&number.to_le_bytes(), 0).unwrap();
                    device.sync_data().unwrap();
                }
            }
        });
        let group = |name: &str| {
            let new = pool.new_group(name, &volumes.each_ref());
            pool.provisioner().begin_group_snapshot(&new).unwrap().commit().unwrap()
        };
        let groups = ["one", "two"].map(group);
        stop.store(true, Ordering::Relaxed);
        groups
    });
    drop(devices);
    for group in groups {
        let number = |volume: &VolumeRecord| {
            let all = pool.opened.catalogue.snapshots(None, 0).unwrap();
            let is_its =
                |it: &&SnapshotRecord| it.source == volume.id && it.group == Some(group.id.clone());
            let member = all.iter().find(is_its).unwrap();
            let copy =
                pool.copy("reads", 8 * MIB, ContentSource::Snapshot(member.id.clone())).unwrap();
            let bytes = read_all(&pool, &copy.id);
            pool.provisioner().ensure_no_volume(&copy.id).unwrap();
            u64::from_le_bytes(bytes[..8].try_into().unwrap())
        };
        let [a, b, c] = [&volumes[0], &volumes[1], &volumes[2]].map(number);
        assert!(a > 0 && a >= b && b >= c && a - c <= 1, "{a} {b} {c}");
    }
}
