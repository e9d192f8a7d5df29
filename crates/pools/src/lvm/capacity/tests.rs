use super::*;
use crate::lvm::testbed::MIB;

fn room() -> Room {
    Room {
        data: 1000 * MIB,
        data_free: 600 * MIB,
        metadata: 100 * MIB,
        metadata_used: 10 * MIB,
        floor: 100 * MIB,
        overcommit_percent: 100,
        promised: u128::from(300 * MIB),
        extents_free: 0,
        area: 512 << 10,
        area_free: 400 << 10,
    }
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
fn nothing_is_made_near_any_limit() {
    let short = [
        (Room { data_free: 100 * MIB, ..room() }, "below its floor"),
        (Room { metadata_used: 81 * MIB, ..room() }, "--poolmetadatasize"),
        (Room { area_free: 31 << 10, ..room() }, "--metadatasize"),
    ];
    for (room, advice) in short {
        for demand in [Demand::Snapshot, Demand::Thin(MIB)] {
            let refusal = refusal(room, demand);
            assert!(refusal.contains(advice), "{refusal}");
        }
    }
    assert!(Room { metadata_used: 80 * MIB, ..room() }.shortage("p").is_none());
}
