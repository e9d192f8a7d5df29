use super::*;
use crate::lvm::testbed::MIB;
use crate::lvm::thin_status::{Mode, WhenFull};

fn status(data: (u64, u64), metadata: (u64, u64)) -> ThinStatus {
    let usage = |(used, size): (u64, u64)| Usage { used: used * MIB, size: size * MIB };
    ThinStatus {
        data: usage(data),
        metadata: usage(metadata),
        mode: Mode::Writable,
        when_full: WhenFull::Queue,
        needs_check: false,
    }
}

fn extents(free: u64) -> Extents {
    Extents { size: 4 * MIB, free: free * MIB, spread: Spread::LINEAR }
}

const POLICY: Extension = Extension { at_percent: 80, by: ThinPoolSize::Percent(20), limit: None };

#[test]
fn metadata_goes_before_data() {
    let both = status((90, 100), (90, 100));
    assert_eq!(POLICY.next(&both, extents(1000), 0), Some(Growth::Metadata(20 * MIB)));
    let data = status((90, 100), (80, 100));
    assert_eq!(POLICY.next(&data, extents(1000), 0), Some(Growth::Data(20 * MIB)));
    let neither = status((80, 100), (80, 100));
    assert_eq!(POLICY.next(&neither, extents(1000), 0), None);
    assert!(POLICY.is_near(&neither) && !POLICY.is_near(&status((70, 100), (10, 100))));
}

#[test]
fn steps_are_extents_and_no_more_than_there_is() {
    let full = status((100, 101), (1, 4));
    assert_eq!(POLICY.next(&full, extents(1000), 0), Some(Growth::Data(24 * MIB)));
    // One extent stays for the metadata, and one for its spare.
    assert_eq!(POLICY.next(&full, extents(12), 0), Some(Growth::Data(4 * MIB)));
    assert_eq!(POLICY.next(&full, extents(4), 0), Some(Growth::Data(4 * MIB)));
    assert_eq!(POLICY.next(&full, extents(0), 0), None);
    let limited = Extension { limit: Some(110 * MIB), ..POLICY };
    assert_eq!(limited.next(&full, extents(1000), 0), Some(Growth::Data(8 * MIB)));
    // Metadata that cannot grow does not keep the data from it.
    let no_room = status((90, 100), (4, 4));
    assert_eq!(POLICY.next(&no_room, extents(4), 0), Some(Growth::Data(4 * MIB)));
}

#[test]
fn a_demand_makes_it_grow_as_much_as_it_needs() {
    let half = status((50, 100), (1, 4));
    assert_eq!(POLICY.next(&half, extents(1000), 0), None);
    assert_eq!(POLICY.next(&half, extents(1000), MIB), Some(Growth::Data(20 * MIB)));
    assert_eq!(POLICY.next(&half, extents(1000), 301 * MIB), Some(Growth::Data(304 * MIB)));
}

#[test]
fn a_step_in_bytes_is_that_of_the_data() {
    let policy = Extension { by: ThinPoolSize::Bytes(50 * MIB), ..POLICY };
    let both = status((90, 100), (90, 100));
    assert_eq!(policy.next(&both, extents(1000), 0), Some(Growth::Metadata(28 * MIB)));
    let data = status((90, 100), (1, 100));
    assert_eq!(policy.next(&data, extents(1000), 0), Some(Growth::Data(52 * MIB)));
}

#[test]
fn metadata_ends_where_dm_thin_does() {
    let most = MOST_METADATA / MIB;
    let all = status((1, 100), (most, most));
    assert_eq!(POLICY.metadata_step(all.metadata, extents(100_000)), 0);
    let less = status((1, 100), (most - 8, most - 8));
    assert_eq!(POLICY.metadata_step(less.metadata, extents(100_000)), 8 * MIB);
}

#[test]
fn copies_and_parity_take_extents_too() {
    let full = status((100, 100), (1, 8));
    let spread = |disks, data_disks, metadata_copies| Extents {
        spread: Spread { disks, data_disks, metadata_copies },
        ..extents(120)
    };
    let growth = |extents| POLICY.next(&full, extents, 1000 * MIB);
    // 4 MiB of metadata and the spare.
    assert_eq!(growth(extents(120)), Some(Growth::Data(112 * MIB)));
    // Twice each, and the spare.
    assert_eq!(growth(spread(2, 1, 2)), Some(Growth::Data(52 * MIB)));
    // 108 MiB on three disks, of which two hold data.
    assert_eq!(growth(spread(3, 2, 2)), Some(Growth::Data(72 * MIB)));
    assert_eq!(POLICY.next(&full, spread(3, 2, 2), 0), Some(Growth::Data(24 * MIB)));
}
