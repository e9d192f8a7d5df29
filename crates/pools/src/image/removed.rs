//! A pool whose directory was removed, with its header, while its devices were attached. All that it held goes on in
//! files without a name, so no new pool is made in its place before they were saved or given up (decision 0031).

use std::fs;
use std::path::{Path, PathBuf};

use orlop_model::{Error, Finding, PoolId, Remedy, Result, VolumeId, only_copy};
use orlop_sys::loopdev::{self, BackedDevice, LoopDevice};
use orlop_sys::mounts;

use super::ImagePool;
use super::attach::parse_label;
use super::failure::cannot;
use super::layout::{Layout, ObjectDir};
use super::managed::{image_in, pool_of_label, steps_to_save};
use super::open::ImagePoolConfig;
use super::pool_header;

/// How the kernel ends the path of a file that was removed.
const REMOVED: &str = " (deleted)";

/// What is left of a pool of which nothing else is.
#[derive(Debug)]
enum Left {
    Image(PoolId, LoopDevice),
    /// The device to copy from comes first.
    Volume(VolumeId, Vec<BackedDevice>),
}

/// Where there is no pool, before one is made.
pub(super) fn check_nothing_left(config: &ImagePoolConfig) -> Result<()> {
    match findings(&config.path)?.as_slice() {
        [] => Ok(()),
        found => {
            let texts: Vec<String> = found.iter().map(text).collect();
            Err(Error::damaged(format!("pool {}", config.name), texts.join("; ")))
        }
    }
}

fn text(finding: &Finding) -> String {
    let Finding { subject, problem, remedy, .. } = finding;
    let remedy = match remedy {
        Remedy::ByHand(advice) => advice.as_str(),
        Remedy::Repair(repair) => repair.act.as_str(),
    };
    format!("{subject}: {problem}; {remedy}")
}

impl ImagePool {
    /// What devices still have of a pool that was removed from this directory.
    pub fn findings_of_removed(path: &Path) -> Result<Vec<Finding>> {
        findings(path)
    }
}

fn findings(path: &Path) -> Result<Vec<Finding>> {
    let root = resolved(path);
    Ok(left_of(&root)?.iter().map(|left| finding(&root, left)).collect())
}

/// Also of a directory that is not there any more.
fn resolved(path: &Path) -> PathBuf {
    for there in path.ancestors() {
        if let Ok(real) = fs::canonicalize(there) {
            // By its parts: an empty rest would leave a slash at the end.
            let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
            return real.components().chain(rest.components()).collect();
        }
    }
    path.to_owned()
}

fn left_of(root: &Path) -> Result<Vec<Left>> {
    let listing = || format!("list the loop devices of the pool at {}", root.display());
    let mut found: Vec<Left> = Vec::new();
    for there in loopdev::all_backed().map_err(cannot(listing))? {
        let file = there.file.to_string_lossy().into_owned();
        let Some(file) = file.strip_suffix(REMOVED).map(Path::new) else { continue };
        // Given up by `losetup --detach`.
        if there.detaching || !file.starts_with(root) {
            continue;
        }
        let status = loopdev::status(&there.device).map_err(cannot(listing))?;
        let label = status.map(|status| status.label).unwrap_or_default();
        if file == image_in(root) {
            found.extend(pool_of_label(&label).map(|pool| Left::Image(pool, there.device)));
        } else if let Some((id, _)) = parse_label(&label)
            && file == data_of(root, &id)
        {
            let same = found.iter_mut().find_map(|left| match left {
                Left::Volume(other, devices) if *other == id => Some(devices),
                Left::Volume(..) | Left::Image(..) => None,
            });
            match same {
                Some(devices) => devices.push(there),
                None => found.push(Left::Volume(id, vec![there])),
            }
        }
    }
    for left in &mut found {
        if let Left::Volume(_, devices) = left {
            devices.sort_by_key(|device| device.read_only);
        }
    }
    Ok(found)
}

fn data_of(root: &Path, id: &VolumeId) -> PathBuf {
    ObjectDir::new(Layout::new(root).volumes().join(id.to_string())).data()
}

fn finding(root: &Path, left: &Left) -> Finding {
    match left {
        Left::Image(pool, device) => {
            let image = image_in(root);
            let header = pool_header::command_to_write(root, pool);
            Finding::by_hand(
                "image-lost",
                format!("the pool's image {}", image.display()),
                format!(
                    "it was removed with the pool around it while {} was attached to it, and the volumes \
                     of pool {pool} are on it alone",
                    device.path().display()
                ),
                format!(
                    "stop the workloads and save it with {}; then start the daemon",
                    steps_to_save(device, &image, Some(header))
                ),
            )
        }
        Left::Volume(id, devices) => {
            let devices: Vec<PathBuf> = devices.iter().map(|it| it.device.path()).collect();
            let device = devices.first().cloned().unwrap_or_default();
            let mut to = root.as_os_str().to_owned();
            to.push(format!(".{id}.saved"));
            let to = PathBuf::from(to);
            let points = mounts::points_of(&devices).unwrap_or_default();
            let unmount = only_copy::unmount_command(&points);
            let detach = only_copy::detach_command(&devices);
            let copy = Some(only_copy::copy_commands(&device, &to));
            let save = only_copy::in_order([unmount.clone(), copy, detach.clone()]);
            Finding::by_hand(
                "data-missing",
                format!("volume {id}"),
                format!(
                    "its pool was removed from {} while {} was attached to its data, which is there alone",
                    root.display(),
                    device.display()
                ),
                format!(
                    "stop its workload and save it with '{save}', or give it up with '{}'; once no device \
                     has any of the pool, a start makes a new one",
                    only_copy::in_order([unmount, detach])
                ),
            )
        }
    }
}

#[cfg(test)]
mod tests;
