use super::*;
use crate::lvm::testbed::MIB;
use crate::lvm::thin_status::{Usage, WhenFull};

fn room() -> Room {
    Room {
        thin: ThinStatus {
            data: Usage { used: 400 * MIB, size: 1000 * MIB },
            metadata: Usage { used: 10 * MIB, size: 100 * MIB },
            mode: Mode::Writable,
            when_full: WhenFull::Error,
            needs_check: false,
        },
        floor: 100 * MIB,
        overcommit_percent: 100,
        promised: u128::from(300 * MIB),
        extended: (1000 * MIB, 100 * MIB),
        group: GroupRoom {
            extent: 4 * MIB,
            free: 80 * MIB,
            area: 512 << 10,
            area_free: 400 << 10,
            disks: 2,
            is_complete: true,
            spread: Spread::LINEAR,
            foreign: 0,
        },
    }
}

fn with_data(used: u64) -> Room {
    let data = Usage { used: used * MIB, size: 1000 * MIB };
    Room { thin: ThinStatus { data, ..room().thin }, ..room() }
}

fn with_metadata(used: u64) -> Room {
    let metadata = Usage { used: used * MIB, size: 100 * MIB };
    Room { thin: ThinStatus { metadata, ..room().thin }, ..room() }
}

fn with_mode(mode: Mode, needs_check: bool) -> Room {
    Room { thin: ThinStatus { mode, needs_check, ..room().thin }, ..room() }
}

fn with_area(area_free: u64) -> Room {
    Room { group: GroupRoom { area_free, ..room().group }, ..room() }
}

const THICK: Demand = Demand::Thick { extents: 80 * MIB, disks: 2 };

#[test]
fn nothing_is_available_while_a_disk_is_missing() {
    assert_eq!(room().available(), room().promisable());
    assert!(room().available() > 0);
    let group = GroupRoom { is_complete: false, ..room().group };
    assert_eq!(Room { group, ..room() }.available(), 0);
}

fn refusal(room: Room, demand: Demand) -> String {
    match room.check("p", demand) {
        Err(Error::Exhausted(reason)) => reason.as_str().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_promised_is_kept_with_all_but_the_floor() {
    assert_eq!(room().promisable(), 600 * MIB);
    assert!(room().check("p", Demand::Thin(600 * MIB)).is_ok());
    assert!(refusal(room(), Demand::Thin(601 * MIB)).contains("600.0 MiB of its"));
    let twice = Room { overcommit_percent: 200, ..room() };
    assert_eq!(twice.promisable(), 1500 * MIB);
    let too_much = Room { promised: u128::from(2000 * MIB), ..room() };
    assert_eq!(too_much.promisable(), 0);
    // A snapshot promises nothing.
    assert!(too_much.check("p", Demand::Snapshot).is_ok());
}

#[test]
fn what_the_pool_may_grow_by_can_be_promised_once_it_has_grown() {
    let growing = Room { extended: (1200 * MIB, 120 * MIB), ..room() };
    assert_eq!((growing.promisable(), growing.promisable_now()), (780 * MIB, 600 * MIB));
    assert_eq!(growing.growth_for(600 * MIB), 0);
    assert_eq!(growing.growth_for(780 * MIB), 180 * MIB);
    assert_eq!(Room { overcommit_percent: 200, ..growing }.growth_for(1600 * MIB), 50 * MIB);
    refusal(growing, Demand::Thin(601 * MIB));
}

#[test]
fn nothing_is_made_near_any_limit() {
    let short = [
        (with_data(900), "below its floor"),
        (with_metadata(81), "--poolmetadatasize"),
        (with_area(31 << 10), "--metadatasize"),
        (with_mode(Mode::ReadOnly, false), "takes no writes until"),
        (with_mode(Mode::Writable, true), "lvconvert --repair"),
        (with_mode(Mode::Failed, true), "has failed"),
    ];
    for (room, advice) in short {
        for demand in [Demand::Snapshot, Demand::Thin(MIB)] {
            let refusal = refusal(room, demand);
            assert!(refusal.contains(advice), "{refusal}");
        }
    }
    assert_eq!(with_metadata(80).thin_shortage(), None);
    assert_eq!(with_data(899).thin_shortage(), None);
}

#[test]
fn thick_volumes_need_extents_and_not_the_thin_pool() {
    for full in [with_data(1000), with_metadata(100), with_mode(Mode::Failed, true)] {
        assert!(full.check("p", THICK).is_ok());
    }
    refusal(with_area(31 << 10), THICK);
    let larger = refusal(room(), Demand::Thick { extents: 84 * MIB, disks: 2 });
    assert!(larger.contains("80.0 MiB are free in its volume group"), "{larger}");
    let wider = refusal(room(), Demand::Thick { extents: 4 * MIB, disks: 3 });
    assert!(wider.contains("takes 3 disks, and its volume group has 2"), "{wider}");
}
