//! I/O limits of devices, kept by the kernel for the workloads' cgroup.

mod follower;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlop_model::{Device, Error, HostLimits, IoLimits, Result};
use orlop_sys::cgroup_io::{IoController, Limits};

use super::LinuxHost;
use super::failure::cannot;
use super::run_files::RunFiles;
use follower::{Follower, InForce, SharedLimits};

/// Limits go by device number and stay with it when the device is detached. The next
/// device with that number must be freed of them, also after a restart, so a marker names each limited device.
pub(super) struct Limiter {
    controller: Option<IoController>,
    markers: RunFiles,
    limited: Mutex<BTreeSet<String>>,
    in_force: Arc<SharedLimits>,
    /// From the first limit on, where new groups have to be followed.
    follower: Mutex<Option<Follower>>,
}

impl HostLimits for LinuxHost {
    fn check_limits_work(&self) -> Result<()> {
        self.limiter.check()
    }

    fn ensure_limits(&self, device: &Device, limits: &IoLimits) -> Result<()> {
        self.limiter.ensure(device, limits)
    }
}

impl Limiter {
    /// Could [`Self::detect`] succeed? Changes nothing.
    pub(super) fn check_group(group: &str) -> Result<()> {
        IoController::check(group).map_err(|failure| unusable(group, &failure))
    }

    pub(super) fn detect(group: &str, markers: PathBuf) -> Result<Self> {
        let controller =
            IoController::detect(group).map_err(|failure| unusable(group, &failure))?;
        let markers = RunFiles::new(markers);
        let mut limited: BTreeSet<String> = markers.names()?.into_iter().collect();
        let in_force = Arc::new(SharedLimits::default());
        if let Some(controller) = &controller {
            // An earlier process set these, and followed until it ended.
            *in_force.lock() = marked(controller, &limited);
        }
        // Markers can be lost without a reboot; the kernel's own list cannot.
        if let Some(controller) = &controller {
            let found =
                controller.limited_devices().map_err(cannot("read the I/O limits in force"))?;
            limited.extend(found.into_iter().map(|(major, minor)| format!("{major}:{minor}")));
        }
        let follower = Mutex::default();
        let limiter =
            Self { controller, markers, limited: Mutex::new(limited), in_force, follower };
        if !limiter.in_force.lock().is_empty()
            && let Err(error) = limiter.ensure_followed()
        {
            tracing::warn!(%error, "cannot follow new cgroups; their I/O is not limited");
        }
        Ok(limiter)
    }

    /// Not before there is a limit, so that it costs nothing where there is none.
    fn ensure_followed(&self) -> Result<()> {
        let top = self.controller.as_ref().and_then(IoController::group_to_follow);
        let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(top), true) = (top, follower.is_none()) {
            *follower = Some(Follower::start(top, &self.in_force)?);
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Result<()> {
        self.controller().map(|_| ())
    }

    fn controller(&self) -> Result<&IoController> {
        self.controller.as_ref().ok_or_else(|| {
            Error::precondition(
                "this machine cannot limit I/O: it has neither a cgroup v2 hierarchy with the io \
                 controller nor a cgroup v1 hierarchy with blkio",
            )
        })
    }

    pub(super) fn ensure(&self, device: &Device, limits: &IoLimits) -> Result<()> {
        let number = format!("{}:{}", device.major, device.minor);
        if limits.is_unlimited() && !self.limited().contains(&number) {
            return Ok(());
        }
        let controller = self.controller()?;
        if !limits.is_unlimited() {
            // Before the limit itself: a crash between the two costs one needless write later.
            self.markers.write(&number, b"")?;
            self.limited().insert(number.clone());
        }
        self.apply(controller, device, &kernel_limits(limits))?;
        if limits.is_unlimited() {
            self.markers.ensure_removed(&number)?;
            self.limited().remove(&number);
        }
        Ok(())
    }

    /// Followed first: a group that is made while the others are written gets what is in force then.
    fn apply(&self, controller: &IoController, device: &Device, limits: &Limits) -> Result<()> {
        if !limits.is_unlimited()
            && let Err(error) = self.ensure_followed()
        {
            // All processes of a user share a small number of inotify instances. A volume is not
            // refused for it: what is there now is limited, and each publication tries again.
            tracing::warn!(
                %error,
                "cannot follow new cgroups, so their I/O is not limited; raise \
                 fs.inotify.max_user_instances"
            );
        }
        let mut in_force = self.in_force.lock();
        match limits.is_unlimited() {
            true => in_force.remove(&(device.major, device.minor)),
            false => in_force.insert((device.major, device.minor), *limits),
        };
        controller
            .apply(device.major, device.minor, limits)
            .map_err(cannot(&format!("limit the I/O of {}", device.path.display())))
    }

    fn limited(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.limited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Markers say which limits are ours, and the kernel what they are.
fn marked(controller: &IoController, names: &BTreeSet<String>) -> InForce {
    let number = |name: &String| {
        let (major, minor) = name.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let numbers = names.iter().filter_map(number);
    let limits = numbers.map(|(major, minor)| ((major, minor), controller.limits_of(major, minor)));
    limits.filter(|(_, limits)| !limits.is_unlimited()).collect()
}

fn unusable(group: &str, failure: &orlop_sys::Error) -> Error {
    Error::invalid(
        "ORLOP_WORKLOAD_CGROUP",
        format!(
            "the workloads' cgroup {group:?} cannot be used: {failure}; name an existing cgroup, or \
             / for all workloads"
        ),
    )
}

fn kernel_limits(limits: &IoLimits) -> Limits {
    Limits {
        read_iops: limits.read_iops,
        write_iops: limits.write_iops,
        read_bytes_per_second: limits.read_bytes_per_second,
        write_bytes_per_second: limits.write_bytes_per_second,
    }
}

#[cfg(test)]
mod tests;
