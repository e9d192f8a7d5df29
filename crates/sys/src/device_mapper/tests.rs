use std::fs::File;

use super::*;
use crate::testbed::root;

/// Removed when it goes out of scope, and what is above it before.
struct Mapped(String);

impl Mapped {
    /// Of zeroes, or of what is below.
    fn create(name: &str, table: &str) -> Self {
        let name = format!("orlop-sys-{name}-{}", std::process::id());
        tool::run(DMSETUP, ["create", &name, VERIFY_NODES, "--table", table]).unwrap();
        Self(name)
    }

    fn found(&self) -> Option<MappedDevice> {
        named(&self.0).unwrap().pop()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(device) = self.found() {
            try_remove(&device).unwrap();
        }
    }
}

/// The guest of tests/guest has to have one.
fn has_device_mapper() -> bool {
    if !root() {
        return false;
    }
    // Where it cannot be loaded, it is built in or not there.
    let _ = tool::run("modprobe", ["--quiet", "dm_mod"]);
    let found = File::open("/dev/mapper/control").is_ok();
    let is_guest = std::env::var_os("ORLOP_TEST_DISK").is_some();
    assert!(found || !is_guest, "no device mapper in the guest");
    if !found {
        println!("skipped: this kernel has no device mapper; `tests/guest/run` has one");
    }
    found
}

#[test]
fn devices_are_found_with_what_is_below_and_above() {
    if !has_device_mapper() {
        return;
    }
    let lower = Mapped::create("lower", "0 16 zero");
    let at = lower.found().unwrap();
    let upper = Mapped::create("upper", &format!("0 8 linear {} 8", at.path().display()));
    let upper_at = upper.found().unwrap();
    assert_ne!((at.major, at.minor), (upper_at.major, upper_at.minor));
    assert!(!at.is_read_only);
    assert_eq!(upper_at.below().unwrap(), std::slice::from_ref(&at));
    assert_eq!(at.above().unwrap(), std::slice::from_ref(&upper_at));
    assert!(at.below().unwrap().is_empty() && upper_at.above().unwrap().is_empty());
    assert!(named("orlop-sys-other").unwrap().is_empty());
}

#[test]
fn targets_are_found_whether_or_not_they_are_loaded() {
    if !has_device_mapper() {
        return;
    }
    for kind in ["linear", "thin-pool", "snapshot", "raid"] {
        assert!(has_target(kind).unwrap(), "{kind}");
    }
    assert!(!has_target("nonsense").unwrap());
}

#[test]
fn device_that_is_open_stays() {
    if !has_device_mapper() {
        return;
    }
    let mapped = Mapped::create("open", "0 8 zero");
    let device = mapped.found().unwrap();
    let open = File::open(device.path()).unwrap();
    let refused = try_remove(&device).unwrap_err();
    assert!(refused.is_refusal(), "{refused}");
    assert!(mapped.found().is_some());
    drop(open);
    try_remove(&device).unwrap();
    assert_eq!(mapped.found(), None);
    try_remove(&device).unwrap();
}
