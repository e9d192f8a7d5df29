#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use super::super::{backing, ensure_detached_from};
use super::*;
use crate::mounts::BindAccess;
use crate::testbed::{Disk, MIB, Mounted, answered, root, scratch, until_detached};
use crate::tool;

/// Mounts of other tests are dropped first: their devices could not be detached as long as the server
/// runs.
const SHOW: &str = r#"
    tac /proc/self/mountinfo | while read -r _ _ _ _ point _; do
        case $point in
            "${1%/*}"/*) umount --lazy --no-canonicalize "$point" ;;
        esac
    done
    cd "$1" && qemu-storage-daemon --daemonize --pidfile "$1/pid" \
        --blockdev driver=file,node-name=file,filename="$1/backing" \
        --export type=fuse,id=export,node-name=file,mountpoint="$1/shown",writable=on \
        && losetup --find --show "$1/shown"
"#;

/// A loop device on a file that a FUSE server shows in another mount namespace.
struct ShownElsewhere {
    device: LoopDevice,
    server: Pid,
}

impl ShownElsewhere {
    fn new(dir: &Path) -> Self {
        File::create(dir.join("backing")).unwrap().set_len(MIB).unwrap();
        File::create(dir.join("shown")).unwrap();
        let dir_name = dir.to_str().unwrap();
        let made = tool::run("unshare", ["--mount", "sh", "-c", SHOW, "sh", dir_name]).unwrap();
        let device = String::from_utf8(made.stdout).unwrap();
        let server = std::fs::read_to_string(dir.join("pid")).unwrap();
        let server = Pid::from_raw(server.trim().parse().unwrap()).unwrap();
        let device = LoopDevice::from_path(Path::new(device.trim())).unwrap();
        Self { device, server }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.server, signal).unwrap();
    }

    fn fall_silent(&self) {
        self.signal(Signal::STOP);
        // The kernel remembers for a second what the server said of the file.
        std::thread::sleep(Duration::from_secs(2));
    }
}

impl Drop for ShownElsewhere {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let file = backing(&self.device).unwrap().unwrap().file;
        let detached = until_detached(&self.device, || ensure_detached_from(&self.device, &file));
        self.signal(Signal::TERM);
        assert!(detached.is_ok() || std::thread::panicking(), "{detached:?}");
    }
}

fn has(all: &[LoopStatus], device: &LoopDevice) -> bool {
    all.iter().any(|status| status.device == *device)
}

#[test]
fn device_on_a_hung_file_is_skipped() {
    if !root() {
        return;
    }
    let (dir, own) = (scratch(), scratch());
    let disk = Disk::new(own.path(), MIB);
    let shown = ShownElsewhere::new(dir.path());
    let listed = || {
        let image = disk.image.clone();
        answered(move || attached(|file| file.file_name() == image.file_name())).unwrap()
    };
    let is_listed_soon = || {
        (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            has(&listed(), &shown.device)
        })
    };
    assert!(is_listed_soon());
    shown.fall_silent();
    for _ in 0..2 {
        let all = listed();
        assert!(!has(&all, &shown.device));
        assert!(has(&all, &disk.device));
        let image = disk.image.clone();
        let on_it = answered(move || attached_to(&image, |_| true)).unwrap();
        let on_it: Vec<_> = on_it.into_iter().map(|there| there.device).collect();
        assert_eq!(on_it, std::slice::from_ref(&disk.device));
    }
    shown.signal(Signal::CONT);
    assert!(is_listed_soon(), "left out although it answers again");
}

#[test]
fn hung_device_that_may_be_ours_is_waited_for() {
    if !root() {
        return;
    }
    let dir = scratch();
    let shown = ShownElsewhere::new(dir.path());
    shown.fall_silent();
    let all = std::thread::scope(|scope| {
        let asking = scope.spawn(|| attached(|file| file.ends_with("shown")).unwrap());
        std::thread::sleep(LISTING_TIMEOUT + Duration::from_secs(1));
        shown.signal(Signal::CONT);
        asking.join().unwrap()
    });
    assert!(has(&all, &shown.device));
}

#[test]
fn a_device_on_a_file_that_is_bound_at_another_path_is_listed() {
    if !root() {
        return;
    }
    let dir = scratch();
    let [image, bound] = ["image", "bound"].map(|name| dir.path().join(name));
    File::create(&image).unwrap().set_len(MIB).unwrap();
    File::create(&bound).unwrap();
    mounts::bind(&image, &bound, BindAccess::ReadWrite).unwrap();
    let _mounted = Mounted::guard(&bound);
    let disk = Disk::attach(&bound, false);
    assert!(has(&attached(|_| false).unwrap(), &disk.device));
    assert_eq!(super::super::find(&image, false).unwrap(), Some(disk.device.clone()));
}

/// A start lists the devices several times: on a node with hundreds, a thread for each is felt.
#[test]
fn devices_that_answer_share_a_thread() {
    if !root() {
        return;
    }
    let dir = scratch();
    let disks: Vec<_> = (0..8)
        .map(|number| {
            let directory = dir.path().join(number.to_string());
            std::fs::create_dir(&directory).unwrap();
            Disk::new(&directory, MIB)
        })
        .collect();
    let devices: Vec<_> =
        disks.iter().map(|disk| backing(&disk.device).unwrap().unwrap()).collect();
    let (queue, answers) = Queue::of(&devices, status);
    queue.start_thread().unwrap();
    let given: Vec<_> = answers.iter().take(devices.len()).collect();
    let asked: Vec<_> = given.into_iter().map(|(device, _)| device).collect();
    let all: Vec<_> = devices.into_iter().map(|there| there.device).collect();
    assert_eq!(asked, all);
    assert_eq!(queue.close(), []);
}

#[test]
fn hung_devices_keep_no_others_from_being_asked() {
    if !root() {
        return;
    }
    let (dir, own) = (scratch(), scratch());
    let disk = Disk::new(own.path(), MIB);
    let shown = ShownElsewhere::new(dir.path());
    let of = |device: &LoopDevice| backing(device).unwrap().unwrap();
    let devices = [of(&shown.device), of(&disk.device)];
    shown.fall_silent();
    let (queue, answers) = Queue::of(&devices, status);
    queue.start_thread().unwrap();
    let given = within_timeout(&queue, &answers, devices.len());
    let answered: Vec<_> = given.into_iter().map(|(device, _)| device).collect();
    assert_eq!(answered, std::slice::from_ref(&disk.device));
    shown.signal(Signal::CONT);
    let (late, status) = answers.recv().unwrap();
    assert_eq!(late, shown.device);
    assert!(status.unwrap().is_some());
}

fn unattached(number: usize) -> BackedDevice {
    BackedDevice {
        device: LoopDevice::from_name(&format!("loop{}", 9_000_000 + number)).unwrap(),
        file: PathBuf::new(),
        read_only: false,
        detaching: false,
    }
}

/// As on a cluster that is slow: each answers, and yet not all would in time, one after the other.
#[test]
fn many_slow_devices_are_all_asked() {
    fn slowly(_: &LoopDevice) -> Result<Option<LoopStatus>> {
        std::thread::sleep(Duration::from_millis(30));
        Ok(None)
    }
    let devices: Vec<_> = (0..500).map(unattached).collect();
    let (queue, answers) = Queue::of(&devices, slowly);
    queue.start_thread().unwrap();
    let given = within_timeout(&queue, &answers, devices.len());
    assert_eq!(given.len(), devices.len());
}

/// As where no second thread can be started: left out, it could be on the file that the caller looks for.
#[test]
fn device_that_was_not_asked_fails_the_listing() {
    let devices = vec![unattached(1000), unattached(1001)];
    let (queue, answers) = Queue::of(&devices, status);
    // By a thread that is waiting for it.
    let hung = queue.next().unwrap();
    let error = concluded(&queue, &answers, Vec::new(), devices).unwrap_err().to_string();
    assert!(error.contains("/dev/loop9001001"), "{error}");
    let mut unanswered = unanswered();
    assert!(unanswered.contains(&hung));
    unanswered.retain(|device| *device != hung);
}
