//! Loop devices, by ioctl.
//!
//! A device belongs to the caller whose label it carries. Labels and the backing file's inode are kept by
//! the kernel, so who attached what is known again after a restart.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, major, makedev, minor, mknodat, open, stat};
use rustix::io::Errno;

use crate::abi::{self, loop_info64};
use crate::crash;
use crate::device_lock::DeviceLock;
use crate::error::{Context, Error, Result};
use crate::resolve;

mod backing;
mod discard;
mod idleness;
mod listing;
mod open_files;
mod statistics;
mod unused;
mod users;

pub use backing::{BackedDevice, all_backed, backing, ensure_detached_from};
pub use discard::{disable_discard, forget};
pub use listing::{attached, attached_to};
use statistics::numbers_in;
pub use statistics::{Statistics, sequence_of, statistics, writes};
pub use unused::{try_detach_unused, try_detach_unused_from, try_keep, try_keep_on};
use users::Sightings;
pub(crate) use users::{first_process, is_below, remote_mounts};
pub use users::{user_elsewhere, user_of, user_of_number};

use idleness::Idleness;

const CONTROL: &str = "/dev/loop-control";

/// Fixed from the first attach: once an XFS file was reflinked, direct I/O needs 4096-byte
/// sectors, and a filesystem made on 512-byte ones could not be mounted again.
const SECTOR: u32 = 4096;

/// Others may win every race for a free device for a while, but not this often.
const ATTACH_ATTEMPTS: u32 = 256;
const DETACH_TIMEOUT: Duration = Duration::from_secs(2);
/// For a device that was to be detached before: it was waited for then, and the caller holds the
/// volume's lock in that time.
const REPEATED_DETACH_TIMEOUT: Duration = Duration::from_millis(100);
/// For a device that no process can be seen to use, as long as something is done on it: the kernel is
/// still at the end of an unmount, which writes to whatever the device is on.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(15);
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoopDevice {
    number: u32,
}

impl LoopDevice {
    /// `/dev/loopN`, and nothing that only leads there.
    pub fn from_path(path: &Path) -> Option<Self> {
        Self::from_name(path.to_str()?.strip_prefix("/dev/")?)
    }

    fn from_name(name: &str) -> Option<Self> {
        let device = Self { number: name.strip_prefix("loop")?.parse().ok()? };
        (device.name() == name).then_some(device)
    }

    fn name(&self) -> String {
        format!("loop{}", self.number)
    }

    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(self.name())
    }

    fn sysfs(&self) -> PathBuf {
        Path::new("/sys/block").join(self.name())
    }

    fn queue(&self) -> PathBuf {
        self.sysfs().join("queue")
    }

    /// Read from sysfs, for opening a device keeps others from detaching it.
    fn has_backing_file(&self) -> bool {
        self.sysfs().join("loop").exists()
    }

    /// Differs with each file that the number is attached to. Linux 5.15; `None` before.
    pub fn sequence(&self) -> Option<u64> {
        std::fs::read_to_string(self.sysfs().join("diskseq")).ok()?.trim().parse().ok()
    }

    /// Major and minor number.
    pub fn device_number(&self) -> Result<(u32, u32)> {
        let path = self.path();
        let rdev = stat(&path).on("stat", &path)?.st_rdev;
        Ok((major(rdev), minor(rdev)))
    }

    fn open(&self, access: OFlags) -> rustix::io::Result<OwnedFd> {
        open(self.path(), access | OFlags::CLOEXEC, Mode::empty())
    }

    /// A container's /dev is not kept by the kernel: a device made after its start has no node.
    fn ensure_node(&self) -> Result<()> {
        let path = self.path();
        if path.exists() {
            return Ok(());
        }
        let numbers = self.sysfs().join("dev");
        let text = std::fs::read_to_string(&numbers).on("read", &numbers)?;
        let (major, minor) = parse_device_number(&text)
            .ok_or_else(|| Error::refused("read", &numbers, "it holds no device number"))?;
        let node = makedev(major, minor);
        match mknodat(CWD, &path, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, node) {
            Ok(()) => {
                crash::after("create the device node");
                Ok(())
            }
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno).on("create the device node", &path),
        }
    }
}

pub(crate) fn parse_device_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopStatus {
    pub device: LoopDevice,
    /// `st_dev` and `st_ino` of the backing file.
    pub backing_device: u64,
    pub backing_inode: u64,
    pub label: String,
    /// Where in the file the device begins.
    pub offset: u64,
    pub read_only: bool,
    pub direct_io: bool,
    /// The device goes away when its last user closes it.
    pub detaching: bool,
}

impl LoopStatus {
    fn new(device: &LoopDevice, info: &loop_info64) -> Self {
        let has = |flag| info.lo_flags & flag != 0;
        let label = info.lo_file_name.split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            device: device.clone(),
            backing_device: info.lo_device,
            backing_inode: info.lo_inode,
            label: String::from_utf8_lossy(label).into_owned(),
            offset: info.lo_offset,
            read_only: has(abi::LO_FLAGS_READ_ONLY),
            direct_io: has(abi::LO_FLAGS_DIRECT_IO),
            detaching: has(abi::LO_FLAGS_AUTOCLEAR),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct AttachOptions<'a> {
    /// At most 63 bytes.
    pub label: &'a str,
    pub read_only: bool,
    /// What the device shows; a file that is longer is not seen past it.
    pub size: u64,
}

/// Attaches a file to a free loop device: direct I/O, 4096-byte sectors, kept until detached.
pub fn attach(backing: &Path, options: &AttachOptions<'_>) -> Result<LoopDevice> {
    let mut info = loop_info(backing, options)?;
    let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let image = resolve::open_without_waiting("open", backing, access)?;
    info.lo_sizelimit = size_limit(length_of(&image, backing)?, options.size);
    let control_path = Path::new(CONTROL);
    let control = File::open(control_path).on("open", control_path)?;

    for attempt in 0..ATTACH_ATTEMPTS {
        let number =
            abi::loop_control_get_free(&control).on("ask for a free device", control_path)?;
        let device = LoopDevice { number };
        if discard::remove_if_disabled(&device) {
            continue;
        }
        match device.ensure_node() {
            Err(error) if error.is_not_found() => {}
            made => made?,
        }
        let configured =
            device.open(access).and_then(|fd| abi::loop_configure(fd, image.as_fd(), SECTOR, info));
        match configured {
            Ok(()) => {
                crash::after("attach");
                warn_without_direct_io(&device, options.label);
                return Ok(device);
            }
            // Another attacher was faster with this device, or it is being removed.
            Err(Errno::BUSY | Errno::NXIO | Errno::NODEV | Errno::NOENT) => pause(attempt),
            Err(errno) => return Err(errno).on("attach", backing),
        }
    }
    Err(Errno::BUSY).on("find a free loop device for", backing)
}

fn loop_info(backing: &Path, options: &AttachOptions<'_>) -> Result<loop_info64> {
    let label = options.label.as_bytes();
    let mut info = abi::NO_LOOP_INFO;
    // The kernel wants the last byte zero.
    if label.len() >= info.lo_file_name.len() || label.contains(&0) {
        return Err(Error::refused("attach", backing, "the label does not fit a loop device"));
    }
    info.lo_file_name[..label.len()].copy_from_slice(label);
    info.lo_flags = abi::LO_FLAGS_DIRECT_IO;
    if options.read_only {
        info.lo_flags |= abi::LO_FLAGS_READ_ONLY;
    }
    Ok(info)
}

fn length_of(file: impl AsFd, path: &Path) -> Result<u64> {
    let length = fstat(file).on("stat", path)?.st_size;
    u64::try_from(length).map_err(|_| Error::refused("stat", path, "its length is negative"))
}

/// None (0) wherever the file's length will do: not every kernel changes a limit while a
/// filesystem is mounted (some answer EAGAIN, some EBUSY), but all let a device that has none
/// follow its file.
fn size_limit(file_length: u64, size: u64) -> u64 {
    if file_length > size { size } else { 0 }
}

/// The kernel drops direct I/O without a word where the backing filesystem cannot do it.
fn warn_without_direct_io(device: &LoopDevice, label: &str) {
    if let Ok(Some(LoopStatus { direct_io: false, .. })) = status(device) {
        tracing::warn!(
            label,
            "the pool's filesystem does not support direct I/O; snapshots will stall writers"
        );
    }
}

/// `None`: not attached, or no such device.
pub fn status(device: &LoopDevice) -> Result<Option<LoopStatus>> {
    read_status(device).on("read the status of", &device.path())
}

fn read_status(device: &LoopDevice) -> std::result::Result<Option<LoopStatus>, Errno> {
    match device.open(OFlags::RDONLY).and_then(abi::loop_get_status) {
        Ok(info) => Ok(Some(LoopStatus::new(device, &info))),
        Err(Errno::NXIO | Errno::NOENT | Errno::NODEV) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Devices that are attached, but not for this process to open.
pub fn closed_to_us() -> Result<Vec<BackedDevice>> {
    let mut closed = all_backed()?;
    closed.retain(|there| there.device.open(OFlags::RDONLY).is_err_and(is_closed));
    Ok(closed)
}

fn is_closed(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM)
}

fn all_devices() -> Result<Vec<LoopDevice>> {
    let block = Path::new("/sys/block");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(block).on("list", block)? {
        let name = entry.on("list", block)?.file_name();
        found.extend(name.to_str().and_then(LoopDevice::from_name));
    }
    Ok(found)
}

/// The device that a file is attached to. The file is known by its inode, so a path that leads to
/// it under another name finds it too.
pub fn find(backing: &Path, read_only: bool) -> Result<Option<LoopDevice>> {
    let on_it = attached_to(backing, |_| true)?;
    Ok(on_it.into_iter().find(|there| there.read_only == read_only).map(|there| there.device))
}

/// Detaches the device if it carries `label`; another label means that the device was
/// detached and is used for something else now.
///
/// While a process has the device open the kernel only marks it to go at the last close. It is
/// waited for briefly, then the answer is an error that [`Error::is_busy`]. One that a program of
/// an earlier daemon works on is left alone, with an error that [`Error::busy_device`]
/// knows.
pub fn ensure_detached(device: &LoopDevice, label: &str) -> Result<()> {
    let path = device.path();
    detach_while(device, |fd| match abi::loop_get_status(fd) {
        Err(errno) if is_gone(errno) => Ok(false),
        Err(errno) => Err(errno).on("read the status of", &path),
        Ok(info) => Ok(LoopStatus::new(device, &info).label == label),
    })
}

/// Is the device still the one with this label? A file on a filesystem that gave up cannot be asked
/// for its inode, and so the device not for its label; then the end of `file` tells, its name and that of
/// its directory. The rest of the path is as it was where the device was attached, through other links or
/// in the mount namespace of a container that is gone.
pub fn is_labelled(device: &LoopDevice, label: &str, file: &Path) -> Result<bool> {
    match read_status(device) {
        Ok(status) => Ok(status.is_some_and(|status| status.label == label)),
        Err(Errno::IO) if backing(device)?.is_some_and(|there| ends_alike(&there.file, file)) => {
            Ok(true)
        }
        Err(errno) => Err(errno).on("read the status of", &device.path()),
    }
}

fn ends_alike(shown: &Path, file: &Path) -> bool {
    let end =
        |path: &Path| Some((path.parent()?.file_name()?.to_owned(), path.file_name()?.to_owned()));
    end(shown).is_some() && end(shown) == end(file)
}

/// As [`ensure_detached`], also of a file that cannot be asked any more.
pub fn ensure_detached_even_dead(device: &LoopDevice, label: &str, file: &Path) -> Result<()> {
    detach_while(device, |_| is_labelled(device, label, file))
}

fn is_gone(errno: Errno) -> bool {
    [Errno::NXIO, Errno::NOENT, Errno::NODEV].contains(&errno)
}

fn detach_while(device: &LoopDevice, is_ours: impl Fn(&OwnedFd) -> Result<bool>) -> Result<()> {
    let path = device.path();
    let began = Instant::now();
    let asked_before = backing(device)?.is_some_and(|there| there.detaching);
    let mut idleness = Idleness::default();
    let mut next_check =
        began + if asked_before { REPEATED_DETACH_TIMEOUT } else { DETACH_TIMEOUT };
    let mut sightings = Sightings::default();
    // Once it is detached, its number may be used again, also for a file with the same label.
    let sequence = device.sequence();
    for attempt in 0.. {
        if !request_detach(device, |fd| Ok(device.sequence() == sequence && is_ours(fd)?))? {
            discard::remove_if_disabled(device);
            return Ok(());
        }
        if Instant::now() >= next_check {
            let waited_enough =
                asked_before || began.elapsed() >= UNMOUNT_TIMEOUT || idleness.is_certain(device);
            if waited_enough || sightings.is_lasting(user_of(device).is_some()) {
                break;
            }
            next_check = Instant::now() + CHECK_INTERVAL;
        }
        // Looked at without opening the device, for an open descriptor would itself keep it.
        if device.has_backing_file() {
            pause(attempt);
        }
    }
    Err(Errno::BUSY).on("detach", &path)
}

/// True while the device was still there, and ours. The descriptor is held from the check of its owner until the
/// call, which keeps the device from being attached to another file in between.
fn request_detach(device: &LoopDevice, is_ours: impl Fn(&OwnedFd) -> Result<bool>) -> Result<bool> {
    let path = device.path();
    let fd = match device.open(OFlags::RDONLY) {
        Err(errno) if is_gone(errno) => return Ok(false),
        fd => fd.on("open", &path)?,
    };
    if !is_ours(&fd)? {
        return Ok(false);
    }
    // A program that was given this number would find another file behind it.
    let _lock = DeviceLock::take_if_free(&path)?;
    match abi::loop_clear(&fd) {
        Ok(()) => {
            crash::after("detach");
            Ok(true)
        }
        Err(Errno::BUSY) => Ok(true),
        Err(errno) if is_gone(errno) => Ok(false),
        Err(errno) => Err(errno).on("detach", &path),
    }
}

/// Waits longer the more often it is called, so that the usual race costs next to nothing.
fn pause(attempt: u32) {
    let wait = Duration::from_micros(100).saturating_mul(1 << attempt.min(16));
    std::thread::sleep(wait.min(MAX_POLL_INTERVAL));
}

/// Lets the device show `size` bytes of its backing file.
pub fn refresh_size(device: &LoopDevice, backing: &Path, size: u64) -> Result<()> {
    let path = device.path();
    let fd = device.open(OFlags::RDONLY).on("open", &path)?;
    if abi::block_device_size(&fd).on("read the size of", &path)? == size {
        return Ok(());
    }
    let length = std::fs::symlink_metadata(backing).on("stat", backing)?.len();
    let limit = size_limit(length, size);
    let mut info = abi::loop_get_status(&fd).on("read the status of", &path)?;
    if info.lo_sizelimit == limit {
        return abi::loop_set_capacity(&fd).effect_on("refresh the size of", &path);
    }
    info.lo_sizelimit = limit;
    abi::loop_set_status(&fd, info).effect_on("change the size of", &path)
}

/// The size of any block device.
pub fn size(device_path: &Path) -> Result<u64> {
    let device = File::open(device_path).on("open", device_path)?;
    abi::block_device_size(device).on("read the size of", device_path)
}

#[cfg(test)]
mod tests;
