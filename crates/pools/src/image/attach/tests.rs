mod dead_disk;
mod size;

use std::fs::File;
use std::os::unix::fs::FileExt;

use orlop_model::{BehindDevice, LabelledDevice, Pool};

use super::super::ImagePool;
use super::super::testbed::*;
use super::*;

const RW: DeviceAccess = DeviceAccess::ReadWrite;
const RO: DeviceAccess = DeviceAccess::ReadOnly;

fn devices(testbed: &Testbed) -> usize {
    devices_of_pool_at(&testbed.pool_path()).len()
}

fn write_through(device: &Device, seed: u64, bytes: u64) {
    let device = File::options().write(true).open(&device.path).unwrap();
    device.write_all_at(&pattern(seed, bytes), 0).unwrap();
    device.sync_all().unwrap();
}

#[test]
fn labels_identify_volumes() {
    let id: VolumeId = "v-01234567-0123456789abcdef0123456789abcdef".parse().unwrap();
    for access in [RW, RO] {
        let label = label_of(&id, access);
        assert!(label.len() <= 63);
        assert_eq!(parse_label(&label), Some((id.clone(), access)));
    }
    assert_eq!(parse_label("/var/lib/other.img"), None);
}

/// Whatever the pool's directory is called where the file was opened.
#[test]
fn pool_files_are_known_by_their_path_suffix() {
    let id = "v-01234567-0123456789abcdef0123456789abcdef";
    let is_own = |pool: &str, file: String| {
        let pool: PoolId = serde_json::from_value(pool.into()).unwrap();
        is_named_as_of(&pool, Path::new(&file))
    };
    assert!(is_own("01234567", format!("/elsewhere/volumes/{id}/data")));
    assert!(is_own("01234567", format!("/trash/{id}.3/data")));
    assert!(!is_own("76543210", format!("/elsewhere/volumes/{id}/data")));
    assert!(!is_own("01234567", format!("/elsewhere/volumes/{id}/record.json")));
    assert!(!is_own("01234567", "/data".to_owned()));
}

/// A killed daemon's mkfs would write to what a workload is given.
#[test]
fn device_locked_by_an_earlier_tool_is_kept_and_refused() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    let program = File::open(format!("/sys/dev/block/{}:{}", device.major, device.minor)).unwrap();
    program.lock().unwrap();
    let busy =
        |outcome: Result<()>| assert!(matches!(outcome, Err(Error::Busy { .. })), "{outcome:?}");
    busy(pool.devices().ensure_attached(&record.id, RW).map(drop));
    busy(pool.devices().ensure_detached(&record.id, RW));
    drop(program);
    assert_eq!(pool.devices().ensure_attached(&record.id, RW).unwrap(), device);
    pool.devices().ensure_detached(&record.id, RW).unwrap();
    assert_eq!(devices(&testbed), 0);
}

#[test]
fn attaching_and_detaching_may_be_repeated() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        assert_eq!(pool.devices().attached(&record.id, RW).unwrap(), None);
        let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
        assert_eq!(pool.devices().ensure_attached(&record.id, RW).unwrap(), device);
        assert_eq!(pool.devices().attached(&record.id, RW).unwrap(), Some(device.clone()));
        assert_eq!(pool.devices().attached(&record.id, RO).unwrap(), None);
        assert_eq!(loopdev::size(&device.path).unwrap(), 16 * MIB);
        assert_eq!(pool.devices().attached_volumes().unwrap(), std::slice::from_ref(&record.id));

        write_through(&device, 5, MIB);
        let data = read(&data_of(&pool, &record.id));
        assert!(data.starts_with(&pattern(5, MIB)));

        for _ in 0..2 {
            pool.devices().ensure_detached(&record.id, RW).unwrap();
        }
        assert_eq!(pool.devices().attached(&record.id, RW).unwrap(), None);
        assert!(pool.devices().attached_volumes().unwrap().is_empty());
        assert_eq!(devices(&testbed), 0);
    }
}

#[test]
fn read_only_device_is_separate_and_refuses_writes() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let writable = pool.devices().ensure_attached(&record.id, RW).unwrap();
    let read_only = pool.devices().ensure_attached(&record.id, RO).unwrap();
    assert_ne!(writable, read_only);
    let opened = File::options().write(true).open(&read_only.path);
    let refused = opened.and_then(|device| device.write_all_at(&[1; 4096], 0));
    assert!(refused.is_err());
    assert_eq!(pool.devices().attached_volumes().unwrap(), std::slice::from_ref(&record.id));
    pool.devices().ensure_detached(&record.id, RW).unwrap();
    assert_eq!(pool.devices().attached(&record.id, RO).unwrap(), Some(read_only));
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    assert_eq!(devices(&testbed), 0);
}

#[test]
fn eight_callers_at_once_get_one_device() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let found: Vec<Device> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| pool.devices().ensure_attached(&record.id, RW).unwrap()))
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(found.iter().all(|device| *device == found[0]));
    assert_eq!(devices(&testbed), 1);
}

#[test]
fn new_process_finds_attached_devices() {
    for testbed in Testbed::all() {
        let pool = testbed.open();
        let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
        let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
        let user = File::open(&device.path).unwrap();
        drop(pool);
        let pool = testbed.open();
        assert_eq!(pool.devices().attached(&record.id, RW).unwrap(), Some(device.clone()));
        assert_eq!(pool.devices().ensure_attached(&record.id, RW).unwrap(), device);
        assert_eq!(devices(&testbed), 1);
        drop(user);
    }
}

#[test]
fn detached_device_is_replaced() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    let device = LoopDevice::from_path(&device.path).unwrap();
    loopdev::ensure_detached(&device, &record.id.to_string()).unwrap();
    assert_eq!(pool.devices().attached(&record.id, RW).unwrap(), None);
    pool.devices().ensure_attached(&record.id, RW).unwrap();
    assert_eq!(devices(&testbed), 1);
}

#[test]
fn device_in_use_is_not_detached() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    let user = File::open(&device.path).unwrap();
    let refused = pool.devices().ensure_detached(&record.id, RW);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    // Who has it open may stay for long, as an agent that looks at all devices does.
    assert_eq!(pool.devices().ensure_attached(&record.id, RW).unwrap(), device);
    drop(user);
    assert_eq!(pool.devices().attached(&record.id, RW).unwrap(), Some(device));
    pool.devices().ensure_detached(&record.id, RW).unwrap();
    assert_eq!(devices(&testbed), 0);
}

#[test]
fn start_detaches_devices_of_deleted_volumes() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    pool.devices().ensure_attached(&record.id, RW).unwrap();
    let home = pool.catalogue.volume_index().directory_of(&record.id);
    pool.directory.layout().move_to_trash(home.directory(), &record.id).unwrap();
    drop(pool);
    assert_eq!(devices(&testbed), 1);
    let pool = testbed.open();
    assert_eq!(devices(&testbed), 0);
    assert!(pool.devices().attached_volumes().unwrap().is_empty());
}

fn shows(device: &Device, seed: u64) {
    let mut shown = vec![0; usize::try_from(MIB).unwrap()];
    File::open(&device.path).unwrap().read_exact_at(&mut shown, 0).unwrap();
    assert!(shown == pattern(seed, MIB), "{}", device.path.display());
}

#[test]
fn start_keeps_devices_with_the_only_copy() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let records =
        ["data", "volume", "renamed"].map(|name| create(&pool, &volume_of(&pool, name, 16 * MIB)));
    let attached = records.each_ref().map(|record| {
        let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
        write_through(&device, 3, MIB);
        device
    });
    std::fs::remove_file(data_of(&pool, &records[0].id)).unwrap();
    let home = pool.catalogue.volume_index().directory_of(&records[1].id);
    orlop_sys::file::remove_tree(home.directory()).unwrap();
    drop(pool);
    let volumes = testbed.pool_path().join("volumes");
    let away = testbed.pool_path().join("away");
    std::fs::rename(&volumes, &away).unwrap();
    for _ in 0..2 {
        drop(testbed.open());
        for device in &attached {
            shows(device, 3);
        }
    }
    std::fs::remove_dir(&volumes).unwrap();
    std::fs::rename(&away, &volumes).unwrap();
    let pool = testbed.open();
    for device in &attached {
        shows(device, 3);
    }
    assert_eq!(pool.devices().attached(&records[2].id, RW).unwrap().as_ref(), Some(&attached[2]));
    assert_eq!(devices(&testbed), 3);
}

/// Two devices on one file would destroy it.
#[test]
fn data_moved_back_after_a_start_has_one_device() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    let data = data_of(&pool, &record.id);
    drop(pool);
    std::fs::rename(&data, data.with_extension("away")).unwrap();
    let pool = testbed.open();
    std::fs::rename(data.with_extension("away"), &data).unwrap();
    assert_eq!(pool.devices().ensure_attached(&record.id, RW).unwrap(), device);
    assert_eq!(devices(&testbed), 1);
}

#[test]
fn a_copy_on_the_same_filesystem_leaves_the_devices_alone() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    write_through(&device, 3, MIB);
    drop(pool);
    let mut config = testbed.config();
    config.path = testbed.pool_path().with_extension("copy");
    let [from, to] =
        [testbed.pool_path(), config.path.clone()].map(std::path::PathBuf::into_os_string);
    orlop_sys::tool::run("cp", ["-a".into(), "--reflink=always".into(), from, to]).unwrap();
    let node = "node".parse().unwrap();
    let inspection = ImagePool::inspect(&config, &node).unwrap().unwrap();
    // No node record names it, so it is not reported (`machine_scan.rs`).
    let is_elsewhere = |it: &LabelledDevice| it.behind == BehindDevice::Elsewhere;
    assert!(inspection.devices.iter().all(is_elsewhere), "{:?}", inspection.devices);
    drop(inspection);
    let in_use = |path| ImagePool::copies_in_use(record.id.pool(), path).unwrap();
    assert_eq!(in_use(&config.path), std::slice::from_ref(&device.path));
    assert!(in_use(&testbed.pool_path()).is_empty());
    let copy = ImagePool::open(config).unwrap();
    shows(&device, 3);
    assert_eq!(copy.devices().attached(&record.id, RW).unwrap(), None);
    let other = copy.devices().ensure_attached(&record.id, RW).unwrap();
    assert_ne!(other, device);
    copy.devices().ensure_detached(&record.id, RW).unwrap();
    shows(&device, 3);
}

/// A bind of a device's node, as a publication of a raw volume is.
struct Bound {
    point: std::path::PathBuf,
}

impl Bound {
    fn of(testbed: &Testbed, device: &Device) -> Self {
        let point = testbed.pool_path().with_extension("bound");
        File::create(&point).unwrap();
        let access = orlop_sys::mounts::BindAccess::ReadWrite;
        orlop_sys::mounts::bind(&device.path, &point, access).unwrap();
        Self { point }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let unmounted = until_unmounted(&self.point);
        assert!(unmounted.is_ok() || std::thread::panicking(), "{unmounted:?}");
    }
}

/// Its number would go to another volume, which would then be read at the bound path.
#[test]
fn bound_device_of_lost_data_is_kept() {
    let Some(testbed) = Testbed::xfs() else { return };
    let mut pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    write_through(&device, 1, MIB);
    let bound = Bound::of(&testbed, &device);
    let data = data_of(&pool, &record.id);
    std::fs::copy(&data, data.with_extension("restored")).unwrap();
    std::fs::rename(data.with_extension("restored"), &data).unwrap();
    for at_start in [false, true] {
        if at_start {
            drop(pool);
            pool = testbed.open();
        } else {
            let refused = pool.devices().ensure_attached(&record.id, RW);
            assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
        }
        let kept = loopdev::status(&LoopDevice::from_path(&device.path).unwrap()).unwrap();
        let kept = kept.expect("the device is there");
        assert!(kept.label == record.id.to_string() && !kept.detaching, "{kept:?}");
    }
    drop(bound);
    // It is not used any more, but what was written to it is in no other place.
    let refused = pool.devices().ensure_attached(&record.id, RW);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    shows(&device, 1);
    let detached = LoopDevice::from_path(&device.path).unwrap();
    loopdev::ensure_detached(&detached, &record.id.to_string()).unwrap();
    let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
    assert_eq!(pool.devices().attached(&record.id, RW).unwrap(), Some(device));
    assert_eq!(devices(&testbed), 1);
}
