//! Mounts at paths that callers name.

use std::path::Path;

use orlop_model::{Device, Error, FsType, MountRequest, Result, TargetPath};
use orlop_sys::mounts::{self, BindAccess, FsMount, MountPoint};
use rustix::io::Errno;

use super::failure::{cannot, cannot_showing, is_missing};
use super::mount_lookup::mount_at;
use super::mount_options::without_options;
use crate::same_mount;

pub(super) fn ensure_mounted(
    request: &MountRequest<'_>,
    target: &TargetPath,
    check: impl Fn(&Path) -> Result<()>,
) -> Result<()> {
    if let Some(there) = mount_at(target)? {
        return same_mount::check_filesystem(target, &there, request);
    }
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
    let point = opened(target, check).inspect_err(|_| remove_if(created, target))?;
    mounts::mount_filesystem_at(&mount, &point).map_err(|failure| {
        remove_if(created, target);
        let doing = format!("mount {} at {target}", request.fs);
        let shown = without_options(&failure.to_string(), &request.options);
        cannot_showing(&doing, failure, shown)
    })
}

pub(super) fn ensure_bound_directory(
    source: &TargetPath,
    target: &TargetPath,
    read_only: bool,
    check: impl Fn(&Path) -> Result<()>,
) -> Result<()> {
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
    opened(target, check)
        .and_then(|at| {
            mounts::bind_at(source.as_path(), &at, access)
                .map_err(cannot("bind the staged filesystem to the target path"))
        })
        .inspect_err(|_| remove_if(created, target))
}

pub(super) fn ensure_bound_device(
    device: &Device,
    target: &TargetPath,
    check: impl Fn(&Path) -> Result<()>,
) -> Result<()> {
    if let Some(there) = mount_at(target)? {
        return same_mount::check_device(target, &there, device);
    }
    let created =
        mounts::ensure_file(target.as_path()).map_err(cannot("create the target path"))?;
    let access = BindAccess::ReadWrite;
    opened(target, check)
        .and_then(|at| {
            mounts::bind_at(&device.path, &at, access)
                .map_err(cannot("bind the device to the target path"))
        })
        .inspect_err(|_| remove_if(created, target))
}

/// Where the path leads now; it may have led elsewhere when it was looked at before.
fn opened(target: &TargetPath, check: impl Fn(&Path) -> Result<()>) -> Result<MountPoint> {
    let point = MountPoint::open(target.as_path()).map_err(cannot("open a mount point"))?;
    check(&point.real_path())?;
    Ok(point)
}

pub(super) fn ensure_unmounted(path: &TargetPath) -> Result<()> {
    match mounts::ensure_unmounted(path.as_path()) {
        Ok(()) => Ok(()),
        Err(failure) if is_missing(&failure) => Ok(()),
        Err(failure) if failure.is_busy() => Err(busy(path)),
        Err(failure) => Err(cannot("unmount a path")(failure)),
    }
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

pub(super) fn ensure_target_removed(path: &TargetPath) -> Result<()> {
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

/// Best effort: an empty directory that stays behind does not hide why the mount failed.
fn remove_if(created: bool, target: &TargetPath) {
    if created && let Err(error) = mounts::remove_mount_point(target.as_path()) {
        tracing::warn!(%target, %error, "cannot remove an unused mount point");
    }
}

#[cfg(test)]
mod tests;
