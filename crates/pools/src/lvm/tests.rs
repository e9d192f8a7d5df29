//! What the guest of tests/guest has, and other machines may not: volumes that become devices.

mod extension;
mod fixture;
mod full;
mod full_metadata;
mod making;
mod raid;
mod thick;

use super::report::LvKind;
use super::testbed::{MIB, Testbed};

#[test]
fn thin_volumes_are_devices_with_their_shares() {
    let Some(bed) = Testbed::with_devices(1) else { return };
    let (lvm, group) = (bed.lvm(), bed.group.as_str());
    bed.create_thin_pool("tp", 64 * MIB);
    let create = ["--virtualsize", "1g", "--thinpool", "tp", "--name", "thin", group];
    bed.run("lvcreate", &create);
    let report = lvm.report().unwrap();
    let pool = report.lv("tp").unwrap();
    assert_eq!((pool.kind(), pool.size), (LvKind::ThinPool, 64 * MIB));
    assert!(pool.metadata_size.is_some() && pool.metadata_used.is_some(), "{pool:?}");
    let thin = report.lv("thin").unwrap();
    assert_eq!((thin.kind(), thin.thin_pool.as_str(), thin.size), (LvKind::Thin, "tp", 1 << 30));
    assert!(thin.is_active(), "{thin:?}");
    let segment = |name| report.segments.iter().find(|segment| segment.lv == name).unwrap();
    assert_eq!(segment("thin").thin_id, Some(1));
    assert!(segment("tp").chunk >= 64 << 10);

    let device = format!("/dev/{group}/thin");
    let open = std::fs::File::open(&device).unwrap();
    let in_use = lvm.change(|| "remove".to_owned(), "lvremove", &[lvm.group().lv(&"thin")]);
    assert!(matches!(in_use, Err(orlop_model::Error::Precondition(_))), "{in_use:?}");
    drop(open);
    bed.run("lvremove", &[lvm.group().lv(&"thin")]);
}
