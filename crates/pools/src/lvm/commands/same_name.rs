//! Volume groups of one name. Who has a volume as a raw device may make a volume group in it, of any name; LVM of this
//! machine sees it while the volume is attached, and refuses a name that two volume groups have.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use orlop_model::VolumeId;
use rustix::fs::{major, minor};
use serde::Deserialize;

/// Names of devices that show volumes, of all pools, begin so.
const OWN_DEVICES: &str = "orlop-";

/// The arguments of `lvm` for the disks of all volume groups of that name.
pub(super) fn arguments(selection: &str) -> Vec<&str> {
    let mut arguments = vec!["pvs", "--reportformat", "json", "--options", "pv_name,vg_uuid"];
    arguments.extend(["--select", selection]);
    arguments
}

pub(super) fn selection(group: &str) -> String {
    format!("vg_name=\"{group}\"")
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Disk {
    #[serde(rename = "pv_name")]
    path: String,
    #[serde(rename = "vg_uuid")]
    group: String,
}

#[derive(Deserialize)]
struct Document {
    report: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    pv: Vec<Disk>,
}

pub(super) fn parse(json: &[u8]) -> Option<Vec<Disk>> {
    let Document { report } = serde_json::from_slice(json).ok()?;
    Some(report.into_iter().flat_map(|part| part.pv).collect())
}

/// The disks of the one volume group that is in no volume. `None`: there are several such, or none.
pub(super) fn outside_of_volumes(
    disks: Vec<Disk>,
    is_volume: impl Fn(&str) -> bool,
) -> Option<Vec<String>> {
    let of_volumes: Vec<String> =
        disks.iter().filter(|disk| is_volume(&disk.path)).map(|disk| disk.group.clone()).collect();
    // A volume group that has any disk in a volume is not the operator's.
    let outside: Vec<Disk> =
        disks.into_iter().filter(|disk| !of_volumes.contains(&disk.group)).collect();
    let first = outside.first()?.group.clone();
    let is_one = outside.iter().all(|disk| disk.group == first);
    is_one.then(|| outside.into_iter().map(|disk| disk.path).collect())
}

/// Is this device one that a workload has as a volume?
pub(super) fn shows_a_volume(device: &str) -> bool {
    let Ok(node) = fs::metadata(device) else { return false };
    let number = format!("{}:{}", major(node.rdev()), minor(node.rdev()));
    let sysfs = Path::new("/sys/dev/block").join(number);
    let read = |attribute: &str| fs::read_to_string(sysfs.join(attribute)).unwrap_or_default();
    read("dm/name").starts_with(OWN_DEVICES) || is_of_an_image_pool(&read("loop/backing_file"))
}

/// `POOL/volumes/ID/data`
fn is_of_an_image_pool(backing_file: &str) -> bool {
    let directory = Path::new(backing_file.trim_end()).parent();
    let name = directory.and_then(Path::file_name).and_then(|name| name.to_str());
    name.is_some_and(|name| name.parse::<VolumeId>().is_ok())
}

#[cfg(test)]
mod tests;
