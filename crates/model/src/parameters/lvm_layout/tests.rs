#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use crate::parameters::VolumeParameters;

fn parse(entries: &[(&str, &str)]) -> Result<VolumeParameters> {
    let thick = [("provisioning", "thick")];
    let all = thick.iter().chain(entries);
    let map: BTreeMap<String, String> =
        all.map(|(key, value)| (key.to_string(), value.to_string())).collect();
    VolumeParameters::parse(&map).map(|(parameters, _)| parameters)
}

#[test]
fn layouts_take_as_many_disks_as_lvm_needs() {
    let disks = |entries: &[(&str, &str)]| {
        let layout = parse(entries).unwrap().lvm;
        (layout.data_disks(), layout.disks(), layout.mirrors())
    };
    assert_eq!(disks(&[]), (1, 1, None));
    assert_eq!(disks(&[("stripes", "3"), ("stripeSize", "64KiB")]), (3, 3, None));
    assert_eq!(disks(&[("raid", "raid1")]), (1, 2, Some(1)));
    assert_eq!(disks(&[("raid", "raid1"), ("mirrors", "2")]), (1, 3, Some(2)));
    assert_eq!(disks(&[("raid", "raid5")]), (2, 3, None));
    assert_eq!(disks(&[("raid", "raid5"), ("stripes", "4")]), (4, 5, None));
    assert_eq!(disks(&[("raid", "raid6")]), (3, 5, None));
    assert_eq!(disks(&[("raid", "raid10"), ("stripes", "3")]), (3, 6, Some(1)));
}

#[test]
fn what_does_not_fit_together_is_invalid() {
    for entries in [
        &[("raid", "raid0")][..],
        &[("raid", "raid1"), ("stripes", "2")],
        &[("raid", "raid1"), ("stripeSize", "64KiB")],
        &[("raid", "raid5"), ("mirrors", "1")],
        &[("raid", "raid5"), ("stripes", "1")],
        &[("raid", "raid6"), ("stripes", "2")],
        &[("mirrors", "1")],
        &[("raid", "raid1"), ("mirrors", "0")],
        &[("stripes", "0")],
        &[("stripes", "+2")],
        &[("stripes", "65")],
        &[("stripes", "")],
        &[("stripeSize", "64KiB")],
        &[("stripes", "2"), ("stripeSize", "64")],
        &[("stripes", "2"), ("stripeSize", "48KiB")],
        &[("stripes", "2"), ("stripeSize", "8MiB")],
        &[("stripes", "2"), ("stripeSize", "2KiB")],
        &[("provisioning", "thin"), ("stripes", "2")],
    ] {
        let refused = parse(entries);
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{entries:?}: {refused:?}");
    }
    let thin = parse(&[("provisioning", "thin"), ("stripes", "2")]).unwrap_err().to_string();
    assert!(thin.contains("stripes is for thick volumes"), "{thin}");
}

#[test]
fn other_kinds_of_pool_refuse_layouts_by_name() {
    let plain = parse(&[]).unwrap();
    assert!(plain.check_no_layout("p", "image").is_ok());
    let striped = parse(&[("stripes", "2")]).unwrap();
    let refused = striped.check_no_layout("p", "image").unwrap_err().to_string();
    assert_eq!(refused, "parameters: stripes is for lvm pools, and pool p is of kind image");
}
