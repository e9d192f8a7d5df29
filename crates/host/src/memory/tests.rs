use orlop_model::{
    Device, DeviceSignature, Error, FsType, HostFilesystems, HostFreezing, HostLimits, HostMounts,
    HostRecords, IoLimits, MountRequest, NameDigest, NodeRecord, PoolId, TargetPath, VolumeId,
};

use super::{MemoryHost, Op};

fn device(minor: u32) -> Device {
    Device { path: format!("/memory/{minor}").into(), major: 7, minor }
}

fn path(text: &str) -> TargetPath {
    TargetPath::parse("test", text).unwrap()
}

fn request(device: &Device) -> MountRequest<'_> {
    MountRequest { device, fs: FsType::Xfs, options: Vec::new(), read_only: false }
}

fn staged(host: &MemoryHost, device: &Device) -> TargetPath {
    let uuid = host.random_uuid().unwrap();
    host.format(device, FsType::Xfs, uuid, &[]).unwrap();
    let stage = path(&format!("/stage/{}", device.minor));
    host.ensure_mounted(&request(device), &stage).unwrap();
    stage
}

fn is_refused<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Precondition(_)))
}

#[test]
fn memory_host_supports_the_volume_lifecycle() {
    let host = MemoryHost::default();
    let device = device(1);
    let unformatted = host.ensure_mounted(&request(&device), &path("/stage/1"));
    assert!(matches!(unformatted, Err(Error::Failed { .. })));

    let stage = staged(&host, &device);
    let target = path("/target");
    for _ in 0..2 {
        host.ensure_mounted(&request(&device), &stage).unwrap();
        host.ensure_bound_directory(&stage, &target, true).unwrap();
    }
    let mounted = host.mount_at(&target).unwrap().unwrap();
    assert!(mounted.is_of(&device) && mounted.read_only);
    assert!(is_refused(&host.ensure_bound_directory(&stage, &target, false)));
    assert!(is_refused(&host.ensure_target_removed(&target)));

    for mounted in [&target, &stage] {
        host.ensure_unmounted(mounted).unwrap();
        host.ensure_target_removed(mounted).unwrap();
        assert!(!host.has_target(mounted));
    }
    assert!(is_refused(&host.ensure_bound_directory(&stage, &target, false)));
    let log: Vec<String> = host.log().iter().map(ToString::to_string).collect();
    let expected = [
        "Format 7:1 xfs",
        "Mount 7:1 /stage/1",
        "BindDirectory /target",
        "Unmount /target",
        "RemoveTarget /target",
        "Unmount /stage/1",
        "RemoveTarget /stage/1",
    ];
    assert_eq!(log, expected);
}

#[test]
fn injected_failure_occurs_once_without_effect() {
    let host = MemoryHost::default();
    let (device, target) = (device(1), path("/block"));
    host.fail_next(Op::BindDevice, Error::failed("bind", "as wished"));
    assert!(host.ensure_bound_device(&device, &target).is_err());
    assert_eq!(host.mount_at(&target).unwrap(), None);
    host.ensure_bound_device(&device, &target).unwrap();
    assert!(host.mount_at(&target).unwrap().unwrap().is_device_node);
    assert_eq!(host.count(Op::BindDevice), 1);
}

#[test]
fn filesystem_grows_only_on_request() {
    let host = MemoryHost::default();
    let device = device(1);
    let stage = staged(&host, &device);
    let before = host.usage(&stage).unwrap().total_bytes;
    host.set_device_size(&device, 2 * before);
    assert_eq!(host.filesystem_size(&device), before);
    host.ensure_grown_unmounted(&device, FsType::Xfs).unwrap();
    assert_eq!(host.filesystem_size(&device), before, "ext4 only");
    host.ensure_grown_mounted(&device, FsType::Xfs, &stage).unwrap();
    assert_eq!(host.usage(&stage).unwrap().total_bytes, 2 * before);
    let elsewhere = host.ensure_grown_mounted(&device, FsType::Xfs, &path("/other"));
    assert!(is_refused(&elsewhere));
}

#[test]
fn expired_freeze_is_detected() {
    let host = MemoryHost::default();
    let stage = staged(&host, &device(1));
    host.freeze(&stage).unwrap();
    assert!(host.is_frozen(&stage) && is_refused(&host.freeze(&stage)));
    assert!(host.ensure_thawed(&stage).unwrap());
    host.freeze(&stage).unwrap();
    host.expire_freezes();
    assert!(!host.is_frozen(&stage));
    assert!(!host.ensure_thawed(&stage).unwrap());
    assert!(is_refused(&host.freeze(&path("/nothing"))));
}

#[test]
fn mounted_filesystem_is_synced_and_trimmed() {
    let host = MemoryHost::default();
    let stage = staged(&host, &device(1));
    host.sync_filesystem(&stage).unwrap();
    host.ensure_trimmed(&stage).unwrap();
    assert_eq!((host.count(Op::SyncFilesystem), host.count(Op::Trim)), (1, 1));

    let block = path("/block");
    host.ensure_bound_device(&device(2), &block).unwrap();
    for elsewhere in [&block, &path("/nothing")] {
        assert!(is_refused(&host.ensure_trimmed(elsewhere)));
    }
    host.fail_next(Op::Trim, Error::NotOffered("NodeReclaimSpace", "as wished".to_owned()));
    assert!(host.ensure_trimmed(&stage).is_err());
    assert_eq!(host.count(Op::Trim), 1);
}

#[test]
fn a_reboot_leaves_only_what_is_on_devices() {
    let host = MemoryHost::default();
    let device = device(1);
    let stage = staged(&host, &device);
    let id = VolumeId::new(PoolId::from_random([1; 4]), NameDigest::of_text("a"));
    let record = NodeRecord {
        stage: None,
        publications: vec![orlop_model::Publication {
            target: path("/target"),
            capability: orlop_model::VolumeCapability {
                access: orlop_model::AccessType::Block,
                mode: orlop_model::AccessMode::SingleNodeWriter,
            },
            read_only: false,
            target_made: true,
        }],
    };
    host.save_node_record(&id, &record).unwrap();
    assert!(host.node_records().unwrap().contains(&id));
    let slow = IoLimits { read_iops: Some(1), ..IoLimits::default() };
    host.ensure_limits(&device, &slow).unwrap();
    assert_eq!(host.limits(&device), slow);

    host.reboot();
    assert_eq!(host.mount_at(&stage).unwrap(), None);
    assert_eq!(host.node_record(&id).unwrap(), NodeRecord::default());
    assert_eq!(host.limits(&device), IoLimits::default());
    assert_ne!(host.signature(&device).unwrap(), DeviceSignature::Blank);
}
