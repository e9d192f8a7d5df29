use super::*;

const MIB: u64 = 1 << 20;

fn room() -> Headroom {
    Headroom {
        enlarging: ENLARGE_FILESYSTEM,
        total: 1000 * MIB,
        free: 600 * MIB,
        floor: 100 * MIB,
        owned: u128::from(700 * MIB),
        overcommit_percent: 100,
        promised: u128::from(200 * MIB),
        earmarked: 0,
        largest_file: 1 << 40,
    }
}

fn volume(bytes: u64) -> Demand {
    Demand { length: bytes, promise: bytes, physical: 0, must_fit: true }
}

#[test]
fn floor_is_a_percentage_or_a_size() {
    assert_eq!(Floor::Percent(5).of(1000 * MIB), 50 * MIB);
    assert_eq!(Floor::Percent(100).of(u64::MAX), u64::MAX);
    assert_eq!(Floor::Bytes(7).of(1), 7);
}

#[test]
fn promised_capacity_can_be_delivered() {
    let capacity = room().capacity(Provisioning::Thin);
    assert_eq!(capacity.available_bytes, 400 * MIB);
    assert_eq!(capacity.largest_volume, 400 * MIB);
    assert!(room().check("p", &volume(400 * MIB)).is_ok());
    assert!(matches!(room().check("p", &volume(401 * MIB)), Err(Error::Exhausted(_))));
}

#[test]
fn sizes_are_whole_units() {
    let mut room = room();
    room.promised += 1;
    let capacity = room.capacity(Provisioning::Thin);
    assert_eq!(capacity.available_bytes, 400 * MIB - 1);
    assert_eq!(capacity.largest_volume, 399 * MIB);
}

#[test]
fn overcommit_multiplies_promises_not_space() {
    let mut room = room();
    room.overcommit_percent = 300;
    assert_eq!(room.capacity(Provisioning::Thin).available_bytes, 1600 * MIB);
    assert_eq!(room.capacity(Provisioning::Thick).available_bytes, 500 * MIB);
    room.earmarked = u128::from(450 * MIB);
    assert_eq!(room.capacity(Provisioning::Thick).available_bytes, 50 * MIB);
    let mut thick = volume(51 * MIB);
    thick.physical = thick.promise;
    assert!(matches!(room.check("p", &thick), Err(Error::Exhausted(_))));
}

#[test]
fn at_the_floor_nothing_is_left() {
    let mut room = room();
    room.free = room.floor;
    assert_eq!(room.capacity(Provisioning::Thin).largest_volume, 0);
    let sharing = Demand { must_fit: false, ..volume(0) };
    let refused = room.check("p", &sharing).unwrap_err().to_string();
    let figures = "pool p is below its floor: 100.0 MiB free of 1000.0 MiB, floor 100.0 MiB; ";
    assert!(refused.starts_with(figures), "{refused}");
    room.free += 1;
    assert!(room.check("p", &sharing).is_ok());
}

#[test]
fn shared_snapshot_needs_no_space() {
    let mut room = room();
    room.promised = room.owned;
    let sharing = Demand { must_fit: false, ..volume(2000 * MIB) };
    assert!(room.check("p", &sharing).is_ok());
    assert!(room.check_ever_possible("p", &sharing).is_ok());
}

#[test]
fn volume_larger_than_the_pool_is_out_of_range() {
    let mut room = room();
    assert!(room.check_ever_possible("p", &volume(1000 * MIB)).is_ok());
    let too_large = room.check_ever_possible("p", &volume(1001 * MIB));
    assert!(matches!(too_large, Err(Error::OutOfRange(_))));
    room.largest_file = 900 * MIB;
    let too_long = room.check_ever_possible("p", &volume(901 * MIB));
    assert!(matches!(too_long, Err(Error::OutOfRange(_))));
}

/// A managed pool is not full because its disk is.
#[test]
fn the_advice_for_a_full_pool_is_what_enlarges_it() {
    let full = || Headroom { free: 0, ..room() };
    assert!(full().below_floor("p").contains(ENLARGE_FILESYSTEM));
    let managed = full().enlarged_by(super::super::ENLARGE_IMAGE).below_floor("p");
    assert!(managed.contains("ORLOP_POOL_IMAGE_SIZE and restart"), "{managed}");
}
