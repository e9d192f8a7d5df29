#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;

use super::*;
use crate::loopdev::{self, AttachOptions};

const MIB: u64 = 1 << 20;

#[test]
fn only_the_range_of_a_device_is_zeroed() {
    if !crate::testbed::root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk");
    std::fs::write(&image, vec![7; usize::try_from(4 * MIB).unwrap()]).unwrap();
    let label = "orlop-test-zero";
    let options = AttachOptions { label, read_only: false, size: 4 * MIB };
    let device = loopdev::attach(&image, &options).unwrap();
    let file = File::options().read(true).write(true).open(device.path()).unwrap();
    zero_range(&file, MIB..3 * MIB).unwrap();
    zero_range(&file, 3 * MIB..3 * MIB).unwrap();
    let mut bytes = vec![0; usize::try_from(4 * MIB).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let refused = zero_range(&file, 3 * MIB..5 * MIB);
    drop(file);
    loopdev::ensure_detached(&device, label).unwrap();
    for (index, byte) in bytes.iter().enumerate() {
        let index = u64::try_from(index).unwrap();
        assert_eq!(*byte, if (MIB..3 * MIB).contains(&index) { 0 } else { 7 }, "at {index}");
    }
    assert!(refused.is_err(), "past its end");
}
