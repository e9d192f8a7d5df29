use super::*;
use crate::lvm::testbed::MIB;

const LINEAR: LvmLayout = LvmLayout { raid: None, mirrors: None, stripes: None, stripe_size: None };

fn raid(level: RaidLevel) -> LvmLayout {
    LvmLayout { raid: Some(level), ..LINEAR }
}

#[test]
fn lvcreate_is_asked_for_what_the_layout_says() {
    let asked = |layout: LvmLayout| arguments(&layout).join(" ");
    assert_eq!(asked(LINEAR), "--type linear");
    assert_eq!(asked(LvmLayout { stripes: Some(1), ..LINEAR }), "--type linear");
    let striped = LvmLayout { stripes: Some(2), stripe_size: Some(64 << 10), ..LINEAR };
    assert_eq!(asked(striped), "--type striped --stripes 2 --stripesize 65536b");
    assert_eq!(asked(raid(RaidLevel::Raid1)), "--type raid1 --mirrors 1");
    assert_eq!(asked(raid(RaidLevel::Raid5)), "--type raid5 --stripes 2");
    assert_eq!(asked(raid(RaidLevel::Raid6)), "--type raid6 --stripes 3");
    let both = LvmLayout { mirrors: Some(2), stripes: Some(3), ..raid(RaidLevel::Raid10) };
    assert_eq!(asked(both), "--type raid10 --stripes 3 --mirrors 2");
}

#[test]
fn copies_and_parity_are_counted() {
    let extents =
        |layout: LvmLayout, megabytes| extents_for(&layout, megabytes * MIB, 4 * MIB) / MIB;
    assert_eq!(extents(LINEAR, 9), 12);
    assert_eq!(extents(LvmLayout { stripes: Some(2), ..LINEAR }, 9), 16);
    assert_eq!(extents(raid(RaidLevel::Raid1), 8), 2 * 12);
    assert_eq!(extents(raid(RaidLevel::Raid5), 16), 3 * 12);
    assert_eq!(extents(raid(RaidLevel::Raid6), 12), 5 * 8);
    assert_eq!(extents(raid(RaidLevel::Raid10), 16), 4 * 12);
}

#[test]
fn what_fits_is_what_is_free_without_copies_and_parity() {
    let striped = LvmLayout { stripes: Some(3), ..LINEAR };
    let layouts = RaidLevel::ALL.map(raid).into_iter().chain([LINEAR, striped]);
    for layout in layouts {
        for free in [0, 4 * MIB, 100 * MIB, 1000 * MIB] {
            let bytes = bytes_in(&layout, free, 4 * MIB);
            assert!(bytes == 0 || extents_for(&layout, bytes, 4 * MIB) <= free, "{layout} {free}");
            assert!(extents_for(&layout, bytes + 1, 4 * MIB) > free, "{layout} {free}");
        }
    }
    assert_eq!(bytes_in(&raid(RaidLevel::Raid1), 1000 * MIB, 4 * MIB), 496 * MIB);
}
