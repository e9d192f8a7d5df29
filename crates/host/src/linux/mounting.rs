//! Mounts at paths that callers name: what is there, as the kernel reports it, and how it comes and goes.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use orlop_model::{
    Device, DeviceMount, Error, FsType, HostMounts, MountRequest, MountState, Result, TargetPath,
    VolumeId,
};
use orlop_sys::filesystem;
use orlop_sys::mounts::{self, BindAccess, FsMount, MountEntry, MountLookup, MountPoint};
use orlop_sys::ownership;
use rustix::fs::{major, minor};
use rustix::io::Errno;

use super::LinuxHost;
use super::failure::{cannot, cannot_io, cannot_showing, is_missing};
use super::mount_options::without_options;
use crate::same_mount;

/// Directories that the daemon itself needs, its pools and its run directory: nothing is mounted there. A volume
/// mounted on one of them, or above it, would hide what all volumes depend on; one inside it would keep the daemon from
/// removing what it no longer needs there.
pub(super) struct ProtectedPaths {
    directories: Vec<PathBuf>,
    /// Inside of them, but made for volumes whose staging path no caller names.
    private_stages: PathBuf,
}

impl HostMounts for LinuxHost {
    fn mount_at(&self, path: &TargetPath) -> Result<Option<MountState>> {
        mount_at(path)
    }

    fn device_node_at(&self, path: &TargetPath) -> Result<Option<(u32, u32)>> {
        match std::fs::metadata(path.as_path()) {
            Ok(metadata) => Ok(block_device_number(&metadata)),
            // Nothing is there, or nothing that can be a device.
            Err(_) => Ok(None),
        }
    }

    fn mounts_of(&self, device: &Device) -> Result<Vec<DeviceMount>> {
        let number = (device.major, device.minor);
        let mounts = mounts::all_mounts().map_err(cannot("list the mounts"))?;
        let mut found = Vec::new();
        for entry in mounts.into_iter().rev() {
            if entry.is_of_device(number, Path::new("/")) {
                found.push(DeviceMount {
                    is_device_node: entry.binds_node(number, Path::new("/")),
                    is_hidden: !leads_to(&entry, device)?,
                    mount_point: entry.mount_point,
                });
            } else if is_named_as(device, &entry) && is_hidden(&entry)? {
                let mount_point = entry.mount_point;
                found.push(DeviceMount { mount_point, is_device_node: true, is_hidden: true });
            }
        }
        Ok(found)
    }

    fn resolved(&self, path: &TargetPath) -> PathBuf {
        resolved(path.as_path())
    }

    fn target_exists(&self, path: &TargetPath) -> Result<bool> {
        match std::fs::symlink_metadata(path.as_path()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
            // Shut down after an error, but there.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(true),
            Err(error) => Err(cannot_io("inspect the target path")(error)),
        }
    }

    fn check_stage_path(&self, path: &TargetPath) -> Result<()> {
        self.protected_paths.check(path)
    }

    fn ensure_mounted(&self, request: &MountRequest<'_>, target: &TargetPath) -> Result<()> {
        self.protected_paths.check_resolved_stage(&resolved(target.as_path()))?;
        if let Some(there) = mount_at(target)? {
            return same_mount::check_filesystem(target, &there, request);
        }
        refuse_small_units(request, target)?;
        let created =
            mounts::ensure_directory(target.as_path()).map_err(cannot("create a mount point"))?;
        let mut options = request.options.clone();
        // A copy has the UUID of its original, and XFS refuses to mount the second of two.
        if request.fs == FsType::Xfs && !options.iter().any(|option| option == "nouuid") {
            options.push("nouuid".to_owned());
        }
        let mount = FsMount {
            device: &request.device.path,
            fs_type: request.fs.as_str(),
            options: &options,
            read_only: request.read_only,
        };
        let point = opened(target, |place| self.protected_paths.check_resolved_stage(place))
            .inspect_err(|_| remove_if(created, target))?;
        mounts::mount_filesystem_at(&mount, &point).map_err(|failure| {
            remove_if(created, target);
            let doing = format!("mount {} at {target}", request.fs);
            let shown = without_options(&failure.to_string(), &request.options);
            cannot_showing(&doing, failure, shown)
        })
    }

    fn ensure_bound_directory(
        &self,
        source: &TargetPath,
        target: &TargetPath,
        read_only: bool,
    ) -> Result<()> {
        self.protected_paths.check(target)?;
        let staged = same_mount::staged(source, mount_at(source)?)?;
        if let Some(there) = mount_at(target)? {
            return same_mount::check_bind(target, &there, &staged, read_only);
        }
        let access = match read_only {
            true => BindAccess::ReadOnly,
            false => BindAccess::ReadWrite,
        };
        let created =
            mounts::ensure_directory(target.as_path()).map_err(cannot("create the target path"))?;
        opened(target, |place| self.protected_paths.check_resolved(place))
            .and_then(|at| {
                mounts::bind_at(source.as_path(), &at, access)
                    .map_err(cannot("bind the staged filesystem to the target path"))
            })
            .inspect_err(|_| remove_if(created, target))
    }

    fn ensure_bound_device(&self, device: &Device, target: &TargetPath) -> Result<()> {
        self.protected_paths.check(target)?;
        if let Some(there) = mount_at(target)? {
            return same_mount::check_device(target, &there, device);
        }
        let created =
            mounts::ensure_file(target.as_path()).map_err(cannot("create the target path"))?;
        opened(target, |place| self.protected_paths.check_resolved(place))
            .and_then(|at| {
                mounts::bind_device_at(&device.path, &at)
                    .map_err(cannot("bind the device to the target path"))
            })
            .inspect_err(|_| remove_if(created, target))
    }

    fn ensure_unmounted(&self, path: &TargetPath) -> Result<()> {
        match mounts::ensure_unmounted(path.as_path()) {
            Ok(()) => Ok(()),
            Err(failure) if is_missing(&failure) => Ok(()),
            Err(failure) if failure.is_busy() => Err(busy(path)),
            Err(failure) => Err(cannot("unmount a path")(failure)),
        }
    }

    fn ensure_unmounted_elsewhere(&self, path: &TargetPath) -> Result<()> {
        drop_copies(path.as_path());
        Ok(())
    }

    fn ensure_target_removed(&self, path: &TargetPath) -> Result<()> {
        match mounts::remove_mount_point(path.as_path()) {
            Ok(()) => Ok(()),
            Err(failure) if is_missing(&failure) => Ok(()),
            Err(failure) if failure.errno() == Some(Errno::NOTEMPTY) => {
                Err(Error::precondition(format!(
                    "cannot remove {path}: it holds files that were written while no volume was \
                     mounted there; move them away and try again"
                )))
            }
            Err(failure) if failure.is_refusal() => Err(Error::precondition(format!(
                "cannot remove the target path {path}: {}, which was put there while no volume was \
                 published at it; move it away and try again",
                failure.cause()
            ))),
            Err(failure) => Err(cannot("remove a mount point")(failure)),
        }
    }

    fn private_stage(&self, id: &VolumeId) -> Result<TargetPath> {
        self.run_dir.private_stage(id)
    }

    fn ensure_group(&self, root: &TargetPath, group: u32) -> Result<()> {
        ownership::apply_group(root.as_path(), group)
            .map_err(cannot(&format!("give {root} to group {group}")))
    }
}

impl ProtectedPaths {
    pub(super) fn new(directories: Vec<PathBuf>, private_stages: PathBuf) -> Self {
        Self { directories, private_stages }
    }

    /// Refuses a path that overlaps with a protected directory; for whatever a caller names.
    fn check(&self, target: &TargetPath) -> Result<()> {
        self.check_resolved(&resolved(target.as_path()))
    }

    /// As [`Self::check_resolved`], for a stage, which may be one of our own.
    fn check_resolved_stage(&self, place: &Path) -> Result<()> {
        match place.starts_with(resolved(&self.private_stages)) {
            true => Ok(()),
            false => self.check_resolved(place),
        }
    }

    /// As [`Self::check`], for a path without links.
    fn check_resolved(&self, place: &Path) -> Result<()> {
        let overlaps = |directory: &&PathBuf| {
            let directory = resolved(directory);
            place.starts_with(&directory) || directory.starts_with(place)
        };
        match self.directories.iter().find(overlaps) {
            None => Ok(()),
            Some(directory) => Err(Error::invalid(
                "path",
                format!(
                    "{} overlaps with {}, which this plugin needs for itself",
                    place.display(),
                    directory.display()
                ),
            )),
        }
    }
}

/// Without the links in that part of the path which exists; the rest will be made as it is named.
fn resolved(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        if let Ok(found) = ancestor.canonicalize() {
            return missing.iter().rev().fold(found, |place, name| place.join(name));
        }
        missing.extend(ancestor.components().next_back().map(|part| part.as_os_str().to_owned()));
    }
    path.to_owned()
}

/// Where the path leads now; it may have led elsewhere when it was checked before.
fn opened(target: &TargetPath, check: impl Fn(&Path) -> Result<()>) -> Result<MountPoint> {
    let point = MountPoint::open(target.as_path()).map_err(cannot("open a mount point"))?;
    check(&point.real_path())?;
    Ok(point)
}

/// Processes of other users, or with rights that the daemon has given up, are not shown to it.
fn busy(path: &TargetPath) -> Error {
    Error::precondition(match mounts::user_of(path.as_path()) {
        Some(user) => format!("{path} is busy: {user}; stop the workload and try again"),
        None => format!(
            "{path} is busy: a process that this daemon may not inspect works in it or has files \
             of it open; find it as root with `fuser -vm {path}`, stop the workload and try again"
        ),
    })
}

/// A container that was started with the host's directories while something was mounted there has a
/// copy of the mount for as long as it runs.
pub(super) fn drop_copies(path: &Path) {
    match mounts::replace_mount_point(path) {
        Ok(()) => {}
        Err(error) if is_missing(&error) => {}
        Err(error) => {
            tracing::debug!(
                path = %path.display(),
                %error,
                "cannot remove copies of a mount in other mount namespaces"
            );
        }
    }
}

/// The kernel refuses it too, but with errors that do not say why, such as "Function not implemented".
fn refuse_small_units(request: &MountRequest<'_>, target: &TargetPath) -> Result<()> {
    let found = filesystem::unit_below_sector(&request.device.path);
    let Some((unit, sector)) = found.map_err(cannot("read the filesystem"))? else { return Ok(()) };
    Err(Error::precondition(format!(
        "cannot mount {} at {target}: the filesystem has {unit}, and the volume has sectors of {sector} bytes, which are \
         larger; use the volume as a raw device, or make the filesystem with {} and import it again",
        request.fs,
        unit.mkfs_for(sector)
    )))
}

/// Best effort: an empty directory that stays behind does not hide why the mount failed.
fn remove_if(created: bool, target: &TargetPath) {
    if created && let Err(error) = mounts::remove_mount_point(target.as_path()) {
        tracing::warn!(%target, %error, "cannot remove an unused mount point");
    }
}

pub(super) fn mount_at(path: &TargetPath) -> Result<Option<MountState>> {
    match mounts::look_up(path.as_path()) {
        Ok(MountLookup::NotMounted) => Ok(None),
        Ok(MountLookup::Filesystem { major, minor }) => Ok(Some(writable(major, minor, false))),
        Ok(MountLookup::DeviceNode { major, minor }) => Ok(Some(writable(major, minor, true))),
        Ok(MountLookup::Unknown) => listed_mount(path),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(cannot("find what is mounted at a path")(error)),
    }
}

fn writable(major: u32, minor: u32, is_device_node: bool) -> MountState {
    MountState { major, minor, is_device_node, read_only: false, filesystem_read_only: false }
}

fn listed_mount(path: &TargetPath) -> Result<Option<MountState>> {
    let entry = match mounts::mount_at(path.as_path()) {
        Ok(Some(entry)) => entry,
        Ok(None) => return Ok(None),
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(cannot("find what is mounted at a path")(error)),
    };
    // A filesystem that has shut down answers stat with EIO. It is no device node then: those
    // live in memory.
    let node = std::fs::symlink_metadata(path.as_path())
        .ok()
        .and_then(|metadata| block_device_number(&metadata));
    let (major, minor) = node.unwrap_or_else(|| filesystem_device_number(&entry));
    Ok(Some(MountState {
        major,
        minor,
        is_device_node: node.is_some(),
        read_only: entry.read_only(),
        filesystem_read_only: entry.superblock_read_only(),
    }))
}

/// Any mount of the device's filesystem, and any bind of its node. The newest first.
pub(super) fn mounts_of_device(device: &Device) -> Result<Vec<MountEntry>> {
    let number = (device.major, device.minor);
    let mounts = mounts::all_mounts().map_err(cannot("list the mounts"))?;
    Ok(mounts
        .into_iter()
        .rev()
        .filter(|entry| entry.is_of_device(number, Path::new("/")))
        .collect())
}

fn leads_to(entry: &MountEntry, device: &Device) -> Result<bool> {
    let point = entry.mount_point.to_str();
    match point.map(|text| TargetPath::parse("mount point", text)) {
        Some(Ok(path)) => Ok(mount_at(&path)?.is_some_and(|there| there.is_of(device))),
        Some(Err(_)) | None => Ok(!is_hidden(entry)?),
    }
}

fn is_hidden(entry: &MountEntry) -> Result<bool> {
    match mounts::mount_at(&entry.mount_point) {
        Ok(there) => Ok(there.is_none_or(|there| there.id != entry.id)),
        Err(error) if is_missing(&error) => Ok(true),
        Err(error) => Err(cannot("find what is mounted at a path")(error)),
    }
}

/// Could the mount be of the device's node, in a /dev that is a container's own? While it is hidden, its
/// name is all there is to know it by.
fn is_named_as(device: &Device, entry: &MountEntry) -> bool {
    entry.root.file_name().is_some_and(|name| Some(name) == device.path.file_name())
}

/// btrfs, which may span devices, has its own anonymous number (0:N); its device is then
/// known by the path it was mounted from. A filesystem without a device keeps the anonymous
/// number, which no device has.
fn filesystem_device_number(entry: &MountEntry) -> (u32, u32) {
    const ANONYMOUS: u32 = 0;
    let shown = (entry.major, entry.minor);
    if entry.major != ANONYMOUS {
        return shown;
    }
    std::fs::metadata(&entry.source)
        .ok()
        .and_then(|metadata| block_device_number(&metadata))
        .unwrap_or(shown)
}

fn block_device_number(metadata: &Metadata) -> Option<(u32, u32)> {
    let device = metadata.rdev();
    metadata.file_type().is_block_device().then(|| (major(device), minor(device)))
}

#[cfg(test)]
mod tests;
