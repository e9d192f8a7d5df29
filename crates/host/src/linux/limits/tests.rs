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

fn limiter(bed: &Testbed, group: &Cgroup) -> Limiter {
    let markers = bed.file("limited");
    std::fs::create_dir_all(&markers).unwrap();
    Limiter::detect(&group.name, markers).unwrap()
}

#[test]
fn limits_reach_the_kernel_and_go_again() {
    let Some(bed) = Testbed::new() else { return };
    let group = Cgroup::new("set");
    let device = bed.device("image", MIB);
    let limiter = limiter(&bed, &group);
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
    assert_eq!(std::fs::read_dir(bed.file("limited")).unwrap().count(), 0);
}

#[test]
fn limits_of_an_earlier_process_do_not_stay_with_the_device() {
    let Some(bed) = Testbed::new() else { return };
    let group = Cgroup::new("restart");
    let device = bed.device("image", MIB);
    limiter(&bed, &group).ensure(&device, &SLOW).unwrap();
    assert!(!group.limits_of(&device).is_empty());
    limiter(&bed, &group).ensure(&device, &IoLimits::default()).unwrap();
    assert_eq!(group.limits_of(&device), Vec::<String>::new());
}

#[test]
fn limits_are_found_again_when_the_notes_are_lost() {
    let Some(bed) = Testbed::new() else { return };
    let group = Cgroup::new("unmarked");
    let device = bed.device("image", MIB);
    limiter(&bed, &group).ensure(&device, &SLOW).unwrap();
    let markers = std::fs::read_dir(bed.file("limited")).unwrap();
    markers.for_each(|marker| std::fs::remove_file(marker.unwrap().path()).unwrap());
    limiter(&bed, &group).ensure(&device, &IoLimits::default()).unwrap();
    assert_eq!(group.limits_of(&device), Vec::<String>::new());
}

#[test]
fn an_unlimited_device_costs_nothing() {
    let Some(bed) = Testbed::new() else { return };
    let group = Cgroup::new("idle");
    let device = bed.device("image", MIB);
    let limiter = limiter(&bed, &group);
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
fn a_missing_group_is_a_mistake_in_the_configuration() {
    let Some(bed) = Testbed::new() else { return };
    let error = Limiter::detect("no-such-group", bed.file("limited")).err().unwrap().to_string();
    assert!(error.contains("ORLOP_WORKLOAD_CGROUP"), "{error}");
}

#[test]
fn a_machine_without_a_controller_says_so() {
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
