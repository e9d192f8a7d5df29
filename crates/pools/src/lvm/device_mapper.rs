//! Devices of device-mapper that are ours: changed by the command `dmsetup`, read from sysfs.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use orlop_model::{Device, Error, Reason, Result};
use orlop_sys::device_mapper::MappedDevice;
use orlop_sys::tool::{self, Ended};
use rustix::fs::{major, minor};
use rustix::io::Errno;

const DMSETUP: &str = "dmsetup";
/// Where no udevd makes device nodes, dmsetup does.
const VERIFY_NODES: &str = "--verifyudev";
const SECTOR: u64 = 512;

/// What a device shows: so many bytes of another one, from its start.
pub(super) struct Table<'a> {
    pub(super) of: &'a str,
    pub(super) bytes: u64,
}

impl Table<'_> {
    fn text(&self) -> String {
        format!("0 {} linear {} 0", self.bytes / SECTOR, self.of)
    }
}

pub(super) fn create(name: &str, table: &Table<'_>, read_only: bool) -> Result<()> {
    let text = table.text();
    let uuid = format!("ORLOP-{name}");
    let mut arguments = vec!["create", name, VERIFY_NODES, "--uuid", &uuid, "--table", &text];
    if read_only {
        arguments.push("--readonly");
    }
    change("make", name, &arguments)
}

/// In place: what has the device open sees the new table. The kernel waits for what is under way.
pub(super) fn replace(name: &str, table: &Table<'_>, read_only: bool) -> Result<()> {
    let text = table.text();
    let mut arguments = vec!["reload", name, "--table", &text];
    if read_only {
        arguments.push("--readonly");
    }
    change("change", name, &arguments)?;
    resume(name)
}

pub(super) fn remove(name: &str) -> Result<()> {
    change("remove", name, &["remove", VERIFY_NODES, name])
}

pub(super) fn make_node(name: &str) -> Result<()> {
    change("make the node of", name, &["mknodes", name])
}

/// Nothing is written to what is below until it is resumed; what was under way is finished. Its filesystem is not frozen
/// with that, as it may be frozen already. The command has a lock on `file`: it waits for what is under way, and may end only
/// after this process was killed.
pub(super) fn suspend(name: &str, file: &Path) -> Result<()> {
    let ended = tool::run_to_end_locking(file, DMSETUP, ["suspend", "--nolockfs", name]);
    succeeded("suspend", name, ended)
}

/// Does nothing to one that is not suspended.
pub(super) fn resume(name: &str) -> Result<()> {
    change("resume", name, &["resume", name])
}

/// Those whose names begin so.
pub(super) fn named(prefix: &str) -> Result<Vec<MappedDevice>> {
    orlop_sys::device_mapper::named(prefix)
        .map_err(|error| Error::failed("list the devices of device-mapper", Reason::of(error)))
}

/// The names of those that are suspended.
pub(super) fn suspended(prefix: &str) -> Result<Vec<String>> {
    let is_suspended = |device: &MappedDevice| {
        let state = sysfs_of(device.major, device.minor).join("dm/suspended");
        fs::read_to_string(state).is_ok_and(|state| state.trim() == "1")
    };
    let all = named(prefix)?.into_iter();
    Ok(all.filter(is_suspended).map(|device| device.name).collect())
}

/// `None`: there is none of this name, or its node is that of something else.
pub(super) fn find(name: &str) -> Result<Option<FoundDevice>> {
    let path = path_of(name);
    let inspecting = || format!("inspect {}", path.display());
    let node = match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        node => node.map_err(|error| Error::failed(inspecting(), Reason::of(error)))?,
    };
    if !node.file_type().is_block_device() {
        return Err(Error::failed(inspecting(), "it is no block device"));
    }
    let (major, minor) = (major(node.rdev()), minor(node.rdev()));
    let sysfs = sysfs_of(major, minor);
    // Without udevd a node may stay when its device is gone, and the number be given to another.
    match fs::read_to_string(sysfs.join("dm/name")) {
        Ok(named) if named.trim_end() == name => {}
        Ok(_) => return Ok(None),
        Err(error) => match Errno::from_io_error(&error) {
            // The last: it is being removed.
            Some(Errno::NOENT | Errno::NODEV | Errno::INVAL) => return Ok(None),
            Some(_) | None => return Err(Error::failed(inspecting(), Reason::of(error))),
        },
    }
    Ok(Some(FoundDevice { device: Device { path, major, minor }, sysfs }))
}

pub(super) fn path_of(name: &str) -> PathBuf {
    Path::new("/dev/mapper").join(name)
}

fn sysfs_of(major: u32, minor: u32) -> PathBuf {
    Path::new("/sys/dev/block").join(format!("{major}:{minor}"))
}

#[derive(Debug)]
pub(super) struct FoundDevice {
    pub(super) device: Device,
    sysfs: PathBuf,
}

impl FoundDevice {
    /// In bytes.
    pub(super) fn size(&self) -> Result<u64> {
        let size = self.sysfs.join("size");
        let reading = || format!("read the size of {}", self.device.path.display());
        let text = fs::read_to_string(&size)
            .map_err(|error| Error::failed(reading(), Reason::of(error)))?;
        let sectors = text.trim().parse::<u64>();
        let sectors = sectors.map_err(|error| Error::failed(reading(), Reason::of(error)))?;
        Ok(sectors.saturating_mul(SECTOR))
    }

    /// Does it show parts of one device of device-mapper, which has that name, and a UUID that begins so?
    pub(super) fn shows_only(&self, uuid_prefix: &str, name: &str) -> bool {
        let below = fs::read_dir(self.sysfs.join("slaves")).into_iter().flatten().flatten();
        let below: Vec<PathBuf> = below.map(|it| it.path()).collect();
        let [it] = below.as_slice() else { return false };
        let read = |attribute: &str| fs::read_to_string(it.join("dm").join(attribute));
        read("uuid").is_ok_and(|uuid| uuid.starts_with(uuid_prefix))
            && read("name").is_ok_and(|found| found.trim_end() == name)
    }
}

/// How often a device is open, by programs, mounts and other devices.
pub(super) fn open_count(name: &str) -> Result<u64> {
    let reading = || format!("inspect the device {name}");
    let fields = ["info", "--columns", "--noheadings", "--options", "open", name];
    let ended = tool::run_to_end(DMSETUP, fields)
        .map_err(|error| Error::failed(reading(), Reason::of(error)))?;
    match String::from_utf8_lossy(&ended.stdout).trim().parse() {
        Ok(count) if ended.status.success() => Ok(count),
        Ok(_) | Err(_) => Err(Error::failed(reading(), said(&ended))),
    }
}

fn change(verb: &str, name: &str, arguments: &[&str]) -> Result<()> {
    succeeded(verb, name, tool::run_to_end(DMSETUP, arguments))
}

fn succeeded(verb: &str, name: &str, ended: orlop_sys::Result<Ended>) -> Result<()> {
    let doing = || format!("{verb} the device {name}");
    let ended = ended.map_err(|error| Error::failed(doing(), Reason::of(error)))?;
    match ended.status.success() {
        true => Ok(()),
        false if ended.stderr.contains("Device or resource busy") => {
            Err(Error::precondition(format!(
                "cannot {}: it, or what it is to show, is in use; unmount or close that first: `dmsetup ls --tree` \
                 and `lsof` show what it is",
                doing()
            )))
        }
        false => Err(Error::failed(doing(), said(&ended))),
    }
}

fn said(ended: &Ended) -> String {
    let lines: Vec<&str> =
        ended.stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => format!("dmsetup ended with {}", ended.status),
        lines => format!("dmsetup says: {}", lines.join("; ")),
    }
}
