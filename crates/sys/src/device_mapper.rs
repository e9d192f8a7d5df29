//! Devices of device-mapper, as the kernel shows them in sysfs. No program is started to list them, and no device is
//! opened, as that may wait for a dead disk.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::error::{Context, Error, Result};
use crate::loopdev::parse_device_number;
use crate::tool::{self, Queries};

const BLOCK_DEVICES: &str = "/sys/block";
const DMSETUP: &str = "dmsetup";
/// For a module to be read from the disk.
const LOADING_LIMIT: Duration = Duration::from_secs(30);
/// udev opens a device for a moment when it is unmounted.
const RETRY: &str = "--retry";
/// Where no udevd removes the device's node, dmsetup does.
const VERIFY_NODES: &str = "--verifyudev";
/// What dmsetup says of a device that something has open.
const BUSY: &str = "Device or resource busy";
/// The same of one that is not there.
const GONE: &str = "No such device or address";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedDevice {
    pub name: String,
    pub uuid: String,
    pub major: u32,
    pub minor: u32,
    pub is_read_only: bool,
    /// `dm-7`: the kernel's name.
    kernel_name: String,
}

impl MappedDevice {
    pub fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.name)
    }

    /// The devices of device-mapper that this one shows parts of.
    pub fn below(&self) -> Result<Vec<Self>> {
        related(&self.directory(), "slaves")
    }

    /// The devices that show parts of this one.
    pub fn above(&self) -> Result<Vec<Self>> {
        related(&self.directory(), "holders")
    }

    fn directory(&self) -> PathBuf {
        Path::new(BLOCK_DEVICES).join(&self.kernel_name)
    }
}

/// All devices whose names begin with `prefix`. One that is removed at this moment is left out.
pub fn named(prefix: &str) -> Result<Vec<MappedDevice>> {
    let listing = Path::new(BLOCK_DEVICES);
    let mut found = Vec::new();
    for entry in fs::read_dir(listing).on("list", listing)? {
        let entry = entry.on("list", listing)?;
        found.extend(described(&entry.file_name())?.filter(|it| it.name.starts_with(prefix)));
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Is there this kind of mapping, such as `thin-pool`? The kernel loads its module when it is asked for its version. A
/// program that loads one itself, as LVM does, needs CAP_SYS_MODULE, and in a container the host's modules.
pub fn has_target(kind: &str) -> Result<bool> {
    let ended = Queries::new(LOADING_LIMIT).run(DMSETUP, ["target-version", kind])?;
    Ok(ended.status.success())
}

/// The devices of device-mapper that show parts of a block device of any kind.
pub fn above(major: u32, minor: u32) -> Result<Vec<MappedDevice>> {
    related(&by_number(major, minor), "holders")
}

/// The same the other way round: the numbers of the devices that one shows parts of.
pub fn below(major: u32, minor: u32) -> Result<Vec<(u32, u32)>> {
    let directory = by_number(major, minor).join("slaves");
    let mut found = Vec::new();
    for name in names_in(&directory)? {
        let path = directory.join(name).join("dev");
        match fs::read_to_string(&path).on("read", &path) {
            Ok(text) => found.extend(parse_device_number(&text)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Of a block device of any kind, as the kernel names it.
pub fn path_of(major: u32, minor: u32) -> Result<PathBuf> {
    let link = by_number(major, minor);
    let target = fs::read_link(&link).on("read the name of", &link)?;
    Ok(Path::new("/dev").join(target.file_name().unwrap_or_default()))
}

/// `None`: this machine has device-mapper. Else why not.
pub fn missing() -> Option<String> {
    let control = Path::new("/dev/mapper/control");
    // Opening its file loads the module where that is installed, also without the right to do so. Where no udevd has made
    // the file, the programs that need it do.
    if is_loaded() || fs::File::open(control).is_ok() {
        return None;
    }
    // Where it cannot be loaded, it is not there.
    let _ = tool::run("modprobe", ["--quiet", "dm_mod"]);
    match is_loaded() {
        true => None,
        false => Some("the kernel has no device-mapper, or its module is not loaded".to_owned()),
    }
}

fn is_loaded() -> bool {
    let drivers = fs::read_to_string("/proc/misc").unwrap_or_default();
    drivers.split_whitespace().any(|word| word == "device-mapper")
}

fn by_number(major: u32, minor: u32) -> PathBuf {
    Path::new("/sys/dev/block").join(format!("{major}:{minor}"))
}

/// An error that is a refusal: something has it open, and it is left as it is.
pub fn try_remove(device: &MappedDevice) -> Result<()> {
    let path = device.path();
    let ended = tool::run_to_end(DMSETUP, ["remove", RETRY, VERIFY_NODES, &device.name])?;
    if ended.status.success() || ended.stderr.contains(GONE) {
        return Ok(());
    }
    if ended.stderr.contains(BUSY) {
        return Err(Error::refused("remove", &path, "something has it open"));
    }
    let stderr = tool::last_lines(&ended.stderr);
    Err(Error::Tool { tool: DMSETUP.to_owned(), status: ended.status, stderr })
}

fn related(device: &Path, kind: &str) -> Result<Vec<MappedDevice>> {
    let mut found = Vec::new();
    for name in names_in(&device.join(kind))? {
        found.extend(described(&name)?);
    }
    Ok(found)
}

fn names_in(directory: &Path) -> Result<Vec<OsString>> {
    let entries = match fs::read_dir(directory).on("list", directory) {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry.on("list", directory)?.file_name())).collect()
}

/// `None`: it is none of device-mapper's, or is gone.
fn described(kernel_name: &OsStr) -> Result<Option<MappedDevice>> {
    let directory = Path::new(BLOCK_DEVICES).join(kernel_name);
    let read = |name: &str| {
        let path = directory.join(name);
        match fs::read_to_string(&path).on("read", &path) {
            Ok(text) => Ok(Some(text.trim_end().to_owned())),
            // `EINVAL`: it is being removed.
            Err(error) => match error.errno() {
                Some(Errno::NOENT | Errno::NODEV | Errno::INVAL) => Ok(None),
                Some(_) | None => Err(error),
            },
        }
    };
    let Some(name) = read("dm/name")? else { return Ok(None) };
    let (Some(uuid), Some(number), Some(read_only)) = (read("dm/uuid")?, read("dev")?, read("ro")?)
    else {
        return Ok(None);
    };
    let Some((major, minor)) = parse_device_number(&number) else {
        return Err(Error::refused("read the number of", &directory, "it has an unknown form"));
    };
    Ok(Some(MappedDevice {
        name,
        uuid,
        major,
        minor,
        is_read_only: read_only != "0",
        kernel_name: kernel_name.to_string_lossy().into_owned(),
    }))
}

#[cfg(test)]
mod tests;
