//! Raw devices that are written to while a group snapshot is taken.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_model::{DeviceAccess, Pool};
use rustix::fs::OFlags;

use crate::image::testbed::*;

const BLOCK: usize = 4096;

/// Direct I/O wants an aligned buffer.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

fn open_direct(path: &Path) -> File {
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    OpenOptions::new().write(true).custom_flags(direct).open(path).unwrap()
}

fn number_in(path: &Path) -> u64 {
    let mut bytes = [0; 8];
    File::open(path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    u64::from_le_bytes(bytes)
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes 1, 2, 3 ... to one device and then to the other, each when the one before is done.
fn count_up(first: &File, second: &File, stopped: &AtomicBool) -> u64 {
    let mut block = Block([0; BLOCK]);
    for number in 1_u64.. {
        if stopped.load(Ordering::Relaxed) {
            return number;
        }
        block.0[..8].copy_from_slice(&number.to_le_bytes());
        for device in [first, second] {
            device.write_all_at(&block.0, 0).unwrap();
        }
    }
    0
}

#[test]
fn btrfs_members_are_of_one_instant() {
    let Some(testbed) = Testbed::btrfs() else { return };
    let pool = testbed.open();
    let volumes = ["a", "b"].map(|name| create(&pool, &volume_of(&pool, name, 16 * MIB)));
    let [first, second] = volumes.each_ref().map(|volume| {
        open_direct(
            &pool.devices().ensure_attached(&volume.id, DeviceAccess::ReadWrite).unwrap().path,
        )
    });
    let stopped = AtomicBool::new(false);
    let mut seen = Vec::new();
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| count_up(&first, &second, &stopped));
        let stop = Stop(&stopped);
        for round in 0..20 {
            let new = group_of(&pool, &format!("g{round}"), &volumes);
            let group = try_take_group(&pool, &new).unwrap();
            let numbers: Vec<u64> =
                group.members.iter().map(|id| number_in(&snapshot_data_of(&pool, id))).collect();
            seen.push((numbers[0], numbers[1]));
        }
        drop(stop);
        writer.join().unwrap()
    });
    let in_order = |(a, b): &(u64, u64)| *a == *b || *a == b + 1;
    assert!(seen.iter().all(in_order), "{seen:?}");
    assert!(seen.is_sorted(), "{seen:?}");
    let distinct = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(distinct > 0 && written > 20, "nothing was written during the captures: {seen:?}");
}
