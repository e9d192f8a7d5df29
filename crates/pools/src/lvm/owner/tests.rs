//! In tags of real LVM.

use super::*;
use crate::lvm::testbed::Testbed;

fn load(bed: &Testbed) -> OwnerTags {
    let lvm = Arc::new(bed.lvm());
    let report = lvm.report().unwrap();
    OwnerTags::load(&lvm, report.lv("tp").unwrap())
}

#[test]
fn owner_is_read_back_and_replaced() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv("tp", 1, &["orlop1:pool:01234567".to_owned()]);
    let tags = load(&bed);
    assert_eq!(tags.get(), None);
    let topology = Topology::parse([("zone".to_owned(), "z1".to_owned())]).unwrap();
    tags.note("first", &topology);
    let info = PoolInfo { id: "01234567".parse().unwrap(), name: "second".to_owned(), topology };
    tags.set_run_stamp(&info, "0123".to_owned(), Path::new("/run/orlop/d")).unwrap();
    // A start leaves the stamp as it is.
    let next = load(&bed);
    next.note("third", &info.topology);
    let found = load(&bed).get().unwrap();
    assert_eq!((found.name.as_str(), &found.topology), ("third", &info.topology));
    assert_eq!(found.run_stamp.as_deref(), Some("0123"));
    assert_eq!(found.run_dir.as_deref(), Some(Path::new("/run/orlop/d")));
    let report = bed.lvm().report().unwrap();
    assert_eq!(report.lv("tp").unwrap().tags.len(), 2);
}

#[test]
fn damaged_owner_is_none_and_is_replaced() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv("tp", 1, &["orlop1:owner:0/1:01234567:name=x".to_owned()]);
    let tags = load(&bed);
    assert_eq!(tags.get(), None);
    tags.note("right", &Topology::default());
    assert_eq!(load(&bed).get().unwrap().name, "right");
    assert_eq!(bed.lvm().report().unwrap().lv("tp").unwrap().tags.len(), 1);
}
