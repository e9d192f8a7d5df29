#![allow(clippy::unwrap_used, clippy::panic)]

use rustix::io::Errno;

use super::*;

#[test]
fn message_that_does_not_fit_is_refused() {
    let refused = |device: &str, message: &str| TargetMessage::new(device, message).err();
    assert_eq!(refused("pool", "release_metadata_snap"), None);
    assert_eq!(refused(&"p".repeat(127), &"m".repeat(127)), None);
    for (device, message) in
        [("", "m"), ("p", ""), ("p\0", "m"), (&"p".repeat(128), "m"), ("p", &"m".repeat(128))]
    {
        assert_eq!(refused(device, message), Some(Errno::INVAL), "{device:?} {message:?}");
    }
}

/// The tests of thin pools in the guest have devices; what the kernel says without one is the same everywhere.
#[test]
fn missing_device_or_kernel_is_named() {
    let error = reserve_metadata_snapshot("orlop-no-such-pool").unwrap_err();
    let known = [Errno::NXIO, Errno::NOENT, Errno::NODEV, Errno::ACCESS, Errno::PERM];
    assert!(error.errno().is_some_and(|errno| known.contains(&errno)), "{error}");
}
