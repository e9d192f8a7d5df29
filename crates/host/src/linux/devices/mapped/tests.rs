//! In the guest of tests/guest, as this needs a device mapper.

use std::fs::File;

use orlop_model::{BehindDevice, HostDevices, NameDigest, PoolId};
use orlop_sys::tool;

use super::super::super::testbed::{Testbed, may_use_root};
use super::*;

/// The devices of a volume: what LVM would have made, and what shows it.
struct Attached {
    id: VolumeId,
    names: Vec<String>,
}

impl Attached {
    /// `None` where there is no device mapper.
    fn new(name: &str) -> Option<Self> {
        if !may_use_root() {
            return None;
        }
        // Where it cannot be loaded, it is built in or not there.
        let _ = tool::run("modprobe", ["--quiet", "dm_mod"]);
        let found = File::open("/dev/mapper/control").is_ok();
        let is_guest = std::env::var_os("ORLOP_TEST_DISK").is_some();
        assert!(found || !is_guest, "no device mapper in the guest");
        if !found {
            println!("skipped: there is no device mapper; `tests/guest/run` has one");
            return None;
        }
        let pool = PoolId::from_random(std::process::id().to_be_bytes());
        let id = VolumeId::new(pool, NameDigest::of_text(name));
        let volume = format!("vg--x-{}", id.to_string().replace('-', "--"));
        create(&volume, "LVM-test", "0 16 zero", &[]);
        let table = format!("0 8 linear /dev/mapper/{volume} 0");
        let (writable, readable) =
            (DeviceAccess::ReadWrite.mapped_name(&id), DeviceAccess::ReadOnly.mapped_name(&id));
        create(&writable, "ORLOP-", &table, &[]);
        create(&readable, "ORLOP-", &table, &["--readonly"]);
        Some(Self { id, names: vec![writable, readable, volume] })
    }

    fn left(&self) -> usize {
        let all = device_mapper::named("").unwrap();
        self.names.iter().filter(|name| all.iter().any(|device| device.name == **name)).count()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = tool::run_to_end("dmsetup", ["remove", "--verifyudev", name]);
        }
    }
}

fn create(name: &str, uuid: &str, table: &str, options: &[&str]) {
    let uuid = format!("{uuid}{name}");
    let arguments = ["create", name, "--verifyudev", "--uuid", &uuid, "--table", table];
    tool::run("dmsetup", arguments.iter().chain(options)).unwrap();
}

#[test]
fn volume_is_detached_without_its_pool() {
    let Some(attached) = Attached::new("detached") else { return };
    let Some(testbed) = Testbed::new() else { return };
    let host = testbed.host();
    let found = host.devices_without_pool(&attached.id).unwrap().unwrap();
    let accesses: Vec<_> = found.iter().map(|unserved| unserved.access).collect();
    assert_eq!(accesses, BOTH);
    let [writable, readable] = found.as_slice() else { panic!("{found:?}") };
    assert!(is_of_any_volume(writable.device.major, writable.device.minor).unwrap());

    let open = File::open(&readable.device.path).unwrap();
    let refused = host.try_detach_without_pool(&attached.id, readable).unwrap_err();
    assert!(matches!(refused, Error::Precondition(_)), "{refused}");
    assert_eq!(attached.left(), 3);
    drop(open);

    host.try_detach_without_pool(&attached.id, readable).unwrap();
    assert_eq!(attached.left(), 2, "the other device has the logical volume open");
    host.try_detach_without_pool(&attached.id, writable).unwrap();
    assert_eq!(attached.left(), 0);
    host.try_detach_without_pool(&attached.id, writable).unwrap();
    assert!(!is_of_any_volume(writable.device.major, writable.device.minor).unwrap());
}

#[test]
fn devices_are_of_one_volume() {
    let Some(attached) = Attached::new("one") else { return };
    let other = VolumeId::new(attached.id.pool().clone(), NameDigest::of_text("other"));
    assert!(of_volume(&other).unwrap().is_empty());
    let unserved = of_volume(&attached.id).unwrap();
    for device in unserved {
        // As of another volume that got the name, or the number, since.
        let elsewhere = Device { minor: device.device.minor + 1000, ..device.device.clone() };
        let stale = UnservedDevice { device: elsewhere, ..device };
        try_detach(&attached.id, &stale).unwrap();
    }
    assert_eq!(attached.left(), 3);
}

#[test]
fn device_with_a_label_is_known_by_its_name() {
    let pool = PoolId::from_random([7; 4]);
    let id = VolumeId::new(pool, NameDigest::of_text("labelled"));
    let labelled = |path: &str| LabelledDevice {
        volume: id.clone(),
        label: String::new(),
        device: Device { path: path.into(), major: 1, minor: 2 },
        behind: BehindDevice::Volume,
    };
    let name = DeviceAccess::ReadOnly.mapped_name(&id);
    let found = of_labelled(&labelled(&format!("/dev/mapper/{name}"))).unwrap();
    assert_eq!(found.access, DeviceAccess::ReadOnly);
    assert_eq!(of_labelled(&labelled("/dev/loop7")), None);
}
