//! Devices that are suspended while snapshots of several volumes are taken: writes to them wait.
//!
//! The call resumes them, or a thread when it takes too long. If the daemon is killed, its thaw helper does; if there is
//! none, the next start.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orlop_model::{Error, PoolId, Reason, Result};
use orlop_sys::thaw_helper::ThawHelper;

use super::super::commands::Lvm;
use super::super::device_mapper;
use super::super::layout::is_of_tag;
use super::super::report::{GroupReport, Lv};
use super::prefix;
use crate::poison::lock;

/// A device that is resumed when this is dropped, or when it has been suspended for too long: a command of LVM that hangs
/// must not keep writers waiting.
pub(in crate::lvm) struct SuspendedDevice {
    device: Arc<Suspended>,
    /// Dropped, it ends the thread that waits for the limit.
    ended: Option<Sender<()>>,
    watch: Option<JoinHandle<()>>,
}

struct Suspended {
    name: String,
    path: PathBuf,
    helper: Option<Arc<ThawHelper>>,
    /// One of both resumes it.
    is_over: Mutex<bool>,
}

impl SuspendedDevice {
    pub(super) fn suspend(
        name: String,
        path: PathBuf,
        helper: Option<&Arc<ThawHelper>>,
        (lock_file, limit): (&Path, Duration),
    ) -> Result<Self> {
        // Before it is suspended: it is resumed even if it is not known whether it is.
        let device =
            Suspended { name, path, helper: helper.map(Arc::clone), is_over: Mutex::default() };
        let mut suspended = Self { device: Arc::new(device), ended: None, watch: None };
        let device = &suspended.device;
        if let Some(helper) = &device.helper {
            warn_without_helper(helper.register(&device.path));
        }
        device_mapper::suspend(&device.name, lock_file)?;
        let (ended, end) = mpsc::channel();
        let device = Arc::clone(device);
        let watching = move || {
            if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) && device.resume() {
                tracing::error!(
                    device = device.name,
                    seconds = limit.as_secs(),
                    "resumed a volume that was suspended for a snapshot for too long: a command of LVM does not end"
                );
            }
        };
        let watch = thread::Builder::new().name("suspended".to_owned()).spawn(watching);
        let watch = watch.map_err(|error| Error::failed("start a thread", Reason::of(error)))?;
        (suspended.ended, suspended.watch) = (Some(ended), Some(watch));
        Ok(suspended)
    }

    /// Was it suspended the whole time? It is not any more.
    pub(in crate::lvm) fn resume(mut self) -> bool {
        let in_time = self.device.resume();
        self.end_watch();
        in_time
    }

    fn end_watch(&mut self) {
        drop(self.ended.take());
        if let Some(watch) = self.watch.take()
            && watch.join().is_err()
        {
            tracing::error!("the thread that limits how long a device is suspended has panicked");
        }
    }
}

impl Drop for SuspendedDevice {
    fn drop(&mut self) {
        self.device.resume();
        self.end_watch();
    }
}

impl Suspended {
    /// `false`: it was resumed before.
    fn resume(&self) -> bool {
        let mut is_over = lock(&self.is_over);
        if std::mem::replace(&mut *is_over, true) {
            return false;
        }
        if let Err(error) = device_mapper::resume(&self.name) {
            tracing::error!(
                device = self.name,
                %error,
                "cannot resume a device that was suspended for a snapshot: writes to it wait; `dmsetup resume` ends that"
            );
            return true;
        }
        if let Some(helper) = &self.helper {
            warn_without_helper(helper.unregister(&self.path));
        }
        true
    }
}

fn warn_without_helper(outcome: orlop_sys::Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!(
            %error,
            "no thaw helper: if this process is killed in the middle of a snapshot, the volume's writers wait for its \
             restart"
        );
    }
}

/// What a daemon suspended that was killed.
pub(in crate::lvm) fn resume_suspended(pool: &PoolId) -> Result<()> {
    for device in device_mapper::suspended(&prefix(pool))? {
        match device_mapper::resume(&device) {
            Ok(()) => {
                tracing::warn!(device, "resumed a volume that an earlier daemon had suspended");
            }
            Err(error) => tracing::error!(
                device,
                %error,
                "cannot resume a volume that an earlier daemon had suspended: writes to it wait"
            ),
        }
    }
    Ok(())
}

/// What a command of LVM has suspended that was killed, as all processes of a container are. No other such command may be
/// under way. LVM knows what each device has to show, so it is asked to resume them.
pub(in crate::lvm) fn refresh_suspended(
    lvm: &Lvm,
    report: &GroupReport,
    thin_pool: &str,
) -> Result<()> {
    let suspended = device_mapper::suspended(&lvm.group().device_name(""))?;
    let is_own = |lv: &&Lv| lv.name == thin_pool || lv.tags.iter().any(|tag| is_of_tag(tag));
    for lv in report.volumes.iter().filter(is_own) {
        let name = lvm.group().device_name(&lv.name);
        // With the devices that LVM has below it.
        let is_its = |device: &String| {
            device
                .strip_prefix(&name)
                .is_some_and(|rest| matches!(rest.get(..1), None | Some("-" | "_")))
        };
        if !suspended.iter().any(is_its) {
            continue;
        }
        let path = lvm.group().lv(&lv.name);
        let resuming = || format!("resume the logical volume {path}");
        match lvm.change(resuming, "lvchange", &["--refresh", &path]) {
            Ok(()) => tracing::warn!(
                logical_volume = path,
                "resumed a logical volume that a command of LVM had suspended before it was killed"
            ),
            Err(error) => tracing::error!(
                logical_volume = path,
                %error,
                "cannot resume a logical volume that a command of LVM had suspended: reads and writes of it wait"
            ),
        }
    }
    Ok(())
}
