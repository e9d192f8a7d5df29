use super::super::testbed::{MIB, Testbed};
use super::*;

const SLOW: IoLimits = IoLimits {
    read_iops: Some(111),
    write_iops: None,
    read_bytes_per_second: None,
    write_bytes_per_second: Some(2_000_000),
};

/// A new cgroup, in whichever hierarchy this machine limits I/O.
struct Cgroup {
    path: PathBuf,
    name: String,
}

impl Cgroup {
    fn new(purpose: &str) -> Self {
        let name = format!("orlop-host-{purpose}-{}", std::process::id());
        let controller = IoController::detect("/").unwrap();
        let path = match controller.expect("this machine limits I/O somehow") {
            IoController::V1 { mount, .. } | IoController::V2 { mount, .. } => mount.join(&name),
        };
        std::fs::create_dir(&path).unwrap();
        Self { path, name }
    }

    /// All that is limited in it, in the words of either hierarchy.
    fn limits(&self) -> String {
        ["io.max", "blkio.throttle.read_iops_device", "blkio.throttle.write_bps_device"]
            .iter()
            .filter_map(|file| std::fs::read_to_string(self.path.join(file)).ok())
            .collect()
    }

    fn limits_of(&self, device: &Device) -> Vec<String> {
        let number = format!("{}:{} ", device.major, device.minor);
        let limits = self.limits();
        let lines = limits.lines().filter(|line| line.starts_with(&number));
        lines.map(str::to_owned).collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir(&self.path);
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

fn limiter(testbed: &Testbed, group: &Cgroup) -> Limiter {
    let notes = testbed.file("limited");
    std::fs::create_dir_all(&notes).unwrap();
    Limiter::detect(&group.name, notes).unwrap()
}

#[test]
fn limits_are_applied_and_lifted() {
    let Some(testbed) = Testbed::new() else { return };
    let group = Cgroup::new("set");
    let device = testbed.device("image", MIB);
    let limiter = limiter(&testbed, &group);
    limiter.check().unwrap();
    for _ in 0..2 {
        limiter.ensure(&device, &SLOW).unwrap();
        let set = group.limits_of(&device).join(" ");
        assert!(set.contains("111") && set.contains("2000000"), "{set}");
    }
    for _ in 0..2 {
        limiter.ensure(&device, &IoLimits::default()).unwrap();
        assert_eq!(group.limits_of(&device), Vec::<String>::new());
    }
    assert_eq!(std::fs::read_dir(testbed.file("limited")).unwrap().count(), 0);
}

#[test]
fn limits_of_an_earlier_process_are_lifted() {
    let Some(testbed) = Testbed::new() else { return };
    let group = Cgroup::new("restart");
    let device = testbed.device("image", MIB);
    limiter(&testbed, &group).ensure(&device, &SLOW).unwrap();
    assert!(!group.limits_of(&device).is_empty());
    limiter(&testbed, &group).ensure(&device, &IoLimits::default()).unwrap();
    assert_eq!(group.limits_of(&device), Vec::<String>::new());
}

#[test]
fn limits_are_found_without_their_records() {
    let Some(testbed) = Testbed::new() else { return };
    let group = Cgroup::new("unnoted");
    let device = testbed.device("image", MIB);
    limiter(&testbed, &group).ensure(&device, &SLOW).unwrap();
    let notes = std::fs::read_dir(testbed.file("limited")).unwrap();
    notes.for_each(|note| std::fs::remove_file(note.unwrap().path()).unwrap());
    limiter(&testbed, &group).ensure(&device, &IoLimits::default()).unwrap();
    assert_eq!(group.limits_of(&device), Vec::<String>::new());
}

#[test]
fn unlimited_device_needs_no_write_to_cgroups() {
    let Some(testbed) = Testbed::new() else { return };
    let group = Cgroup::new("idle");
    let device = testbed.device("image", MIB);
    let limiter = limiter(&testbed, &group);
    // Set behind its back: still there, so nothing was written.
    let controller = IoController::detect(&group.name).unwrap().unwrap();
    let set = |limits: &IoLimits| {
        let limits = kernel_limits(limits);
        controller.apply(device.major, device.minor, &limits).unwrap();
    };
    set(&SLOW);
    limiter.ensure(&device, &IoLimits::default()).unwrap();
    assert!(!group.limits_of(&device).is_empty());
    set(&IoLimits::default());
}

#[test]
fn missing_cgroup_is_a_configuration_error() {
    let Some(testbed) = Testbed::new() else { return };
    let error =
        Limiter::detect("no-such-group", testbed.file("limited")).err().unwrap().to_string();
    assert!(error.contains("ORLOP_WORKLOAD_CGROUP"), "{error}");
}

#[test]
fn missing_io_controller_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let limiter = Limiter {
        controller: None,
        markers: RunFiles::new(scratch.path().to_owned()),
        limited: Mutex::default(),
        in_force: Arc::default(),
        follower: Mutex::default(),
    };
    let device = Device { path: "/dev/none".into(), major: 7, minor: 0 };
    limiter.ensure(&device, &IoLimits::default()).unwrap();
    for refused in [limiter.check(), limiter.ensure(&device, &SLOW)] {
        assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    }
}
