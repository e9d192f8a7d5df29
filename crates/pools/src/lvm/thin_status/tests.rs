use orlop_sys::tool;

use super::*;
use crate::lvm::testbed::{LIMIT, MIB, Testbed};

fn parse(line: &str) -> std::result::Result<ThinStatus, String> {
    line.parse()
}

#[test]
fn states_of_thin_pools_are_read() {
    let well = parse(
        "0 131072 thin-pool 1 14/1024 5/1024 - rw discard_passdown queue_if_no_space - 1024 ",
    );
    let expected = ThinStatus {
        data: Usage { used: 5 << 16, size: 64 * MIB },
        metadata: Usage { used: 14 << 12, size: 4 * MIB },
        mode: Mode::Writable,
        when_full: WhenFull::Queue,
        needs_check: false,
    };
    assert_eq!(well, Ok(expected));
    // While its metadata is held for a comparison of snapshots.
    let held = "0 131072 thin-pool 7 14/1024 1024/1024 33 out_of_data_space no_discard_passdown \
                error_if_no_space - 1024";
    let held = parse(held).unwrap();
    assert_eq!((held.mode, held.when_full), (Mode::OutOfData, WhenFull::Error));
    assert_eq!(held.data.free(), 0);
    let check = "0 131072 thin-pool 7 1000/1024 9/1024 - ro discard_passdown queue_if_no_space \
                 needs_check 1024";
    let check = parse(check).unwrap();
    assert_eq!((check.mode, check.needs_check), (Mode::ReadOnly, true));
    assert_eq!(parse("0 131072 thin-pool Fail").unwrap().mode, Mode::Failed);
    assert_eq!(parse("0 131072 thin-pool Error").unwrap().mode, Mode::Failed);
}

#[test]
fn what_is_no_state_is_refused() {
    for line in [
        "",
        "0 131072 linear 7:1 0",
        "0 131072 thin-pool",
        "0 131072 thin-pool 1 14/1024 5/0 - rw discard_passdown queue_if_no_space - 1024",
        "0 131072 thin-pool 1 14 5/1024 - rw discard_passdown queue_if_no_space - 1024",
        "0 131072 thin-pool 1 14/1024 5/1024 - xx discard_passdown queue_if_no_space - 1024",
    ] {
        assert!(parse(line).is_err(), "{line:?}");
    }
}

#[test]
fn percentages_are_exceeded_not_reached() {
    let usage = Usage { used: 80, size: 100 };
    assert!(usage.is_above(79) && !usage.is_above(80));
    assert!(Usage { used: u64::MAX, size: u64::MAX }.is_above(99));
}

#[test]
fn what_a_thin_volume_has_mapped_is_read() {
    assert_eq!(mapped_bytes("0 65536 thin 0 -\n"), Ok(0));
    assert_eq!(mapped_bytes("0 65536 thin 256 65535 \n"), Ok(128 << 10));
    for line in ["", "0 65536 thin", "0 65536 thin Fail", "0 65536 linear 256", "0 65536 thin -"] {
        assert!(mapped_bytes(line).is_err(), "{line}");
    }
}

/// LVM renames it while it makes the first volume.
#[test]
fn a_device_that_is_away_for_a_moment_is_waited_for() {
    const AWAY: Duration = Duration::from_millis(500);
    let Some(bed) = Testbed::with_devices(1) else { return };
    bed.create_thin_pool("tp", 16 * MIB);
    let group: GroupName = bed.group.parse().unwrap();
    let device = ThinPoolDevice::new(&group, "tp", LIMIT);
    let rename = |from: &str, to: &str| {
        tool::run("dmsetup", ["rename", from, to]).unwrap();
    };
    let (name, elsewhere) = (group.device_name("tp"), group.device_name("elsewhere"));
    rename(&name, &elsewhere);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(AWAY);
            rename(&elsewhere, &name);
        });
        assert_eq!(device.status().unwrap().map(|status| status.mode), Some(Mode::Writable));
    });
    bed.run("lvchange", &["--activate", "n", &group.lv(&"tp")]);
    assert_eq!(device.status().unwrap(), None);
}
