//! I/O limits of devices, kept by the kernel for the workloads' cgroup.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_model::{Device, Error, IoLimits, Result};
use orlop_sys::throttle::{Controller, Limits};

use super::failure::Doing;
use super::notes::Notes;

/// Limits go by device number and stay with it when the device is detached. Whoever gets the
/// number next must be freed of them, also after a restart, so a note names each limited device.
pub(super) struct Limiter {
    controller: Option<Controller>,
    notes: Notes,
    limited: Mutex<BTreeSet<String>>,
}

impl Limiter {
    pub(super) fn detect(group: &str, notes: PathBuf) -> Result<Self> {
        let controller = Controller::detect(group).map_err(|failure| {
            Error::precondition(format!(
                "the workloads' cgroup {group:?} cannot be used: {failure}; set \
                 ORLOP_WORKLOAD_CGROUP to an existing cgroup, or to / for all workloads"
            ))
        })?;
        let notes = Notes::new(notes);
        let mut limited: BTreeSet<String> = notes.names()?.into_iter().collect();
        // Notes can be lost without a reboot; the kernel's own list cannot.
        if let Some(controller) = &controller {
            let found = controller.limited_devices().doing("read the I/O limits in force")?;
            limited.extend(found.into_iter().map(|(major, minor)| format!("{major}:{minor}")));
        }
        Ok(Self { controller, notes, limited: Mutex::new(limited) })
    }

    pub(super) fn check(&self) -> Result<()> {
        self.controller().map(|_| ())
    }

    fn controller(&self) -> Result<&Controller> {
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
            self.notes.write(&number, b"")?;
            self.limited().insert(number.clone());
        }
        controller
            .apply(device.major, device.minor, &kernel_limits(limits))
            .doing(&format!("limit the I/O of {}", device.path.display()))?;
        if limits.is_unlimited() {
            self.notes.ensure_removed(&number)?;
            self.limited().remove(&number);
        }
        Ok(())
    }

    fn limited(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.limited.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
