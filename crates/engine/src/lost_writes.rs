//! Writes that a workload made and the kernel could not keep: the pool was full, or its disk gave errors.
//!
//! A mount shows nothing of it: a write succeeds, its write-back fails later, and the kernel reports that to the
//! first process that syncs. So the engine syncs to find out, when statistics are asked for and twice a minute without
//! any call: each time while something is wrong with the pool, because lost writes are likely then, and now and then
//! otherwise.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{
    Condition, Device, Error, HealthReason, Host, Problem, Result, TargetPath, VolumeId,
};

use crate::engine::Engine;

/// The interval while nothing suggests lost writes. More frequent syncs would slow workloads down.
const CHECK_INTERVAL: Duration = Duration::from_secs(300);
/// How long a call for statistics waits for a check. The result of a longer one is reported by the next call.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// For an unstage.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(60);
/// How many checks may run at once: each is a thread that waits for a disk.
const MAX_CHECKS: usize = 8;

/// When each volume was last checked.
#[derive(Default)]
pub(crate) struct WritebackChecks {
    checks: Mutex<BTreeMap<VolumeId, Check>>,
    ended: Condvar,
}

#[derive(Clone, Copy)]
struct Check {
    begun: Instant,
    is_under_way: bool,
}

impl WritebackChecks {
    fn all(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Check>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a volume is detached: a check has its filesystem or its device open. It takes no longer than
    /// the last unmount would, as that writes back the same. `false`: it is still under way.
    fn wait_for(&self, id: &VolumeId) -> bool {
        let is_under_way = |all: &mut BTreeMap<VolumeId, Check>| {
            all.get(id).is_some_and(|check| check.is_under_way)
        };
        let waited = self.ended.wait_timeout_while(self.all(), UNMOUNT_TIMEOUT, is_under_way);
        let (_all, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }

    /// `false`: a check is running, or has ended not long ago.
    fn try_begin(&self, id: &VolumeId, is_urgent: bool) -> bool {
        let mut all = self.all();
        all.retain(|_, check| check.is_under_way || check.begun.elapsed() < CHECK_INTERVAL);
        let is_due = all.get(id).is_none_or(|last| is_urgent && !last.is_under_way);
        let running = all.values().filter(|check| check.is_under_way).count();
        if !is_due || running >= MAX_CHECKS {
            return false;
        }
        all.insert(id.clone(), Check { begun: Instant::now(), is_under_way: true });
        true
    }
}

/// Ends the check, also if it panics.
struct CheckUnderWay {
    checks: Arc<WritebackChecks>,
    id: VolumeId,
}

impl Drop for CheckUnderWay {
    fn drop(&mut self) {
        if let Some(check) = self.checks.all().get_mut(&self.id) {
            check.is_under_way = false;
        }
        self.checks.ended.notify_all();
    }
}

/// Where a workload writes.
pub(crate) enum WrittenAt {
    Mount(TargetPath, Device),
    Device(Device),
}

impl WrittenAt {
    fn lost_writes(&self, host: &dyn Host) -> Result<Option<String>> {
        match self {
            Self::Mount(mount, device) => host.lost_writes_at(mount, device),
            Self::Device(device) => host.lost_writes_on(device),
        }
    }
}

impl Engine {
    /// Checks for lost writes if a check is due, and records what it finds.
    pub(crate) fn look_for_lost_writes(&self, id: &VolumeId, at: WrittenAt, is_urgent: bool) {
        if !self.writeback_checks().try_begin(id, is_urgent) {
            return;
        }
        let under_way =
            CheckUnderWay { checks: Arc::clone(self.writeback_checks()), id: id.clone() };
        let host = Arc::clone(self.host());
        let (done, waiting) = mpsc::sync_channel::<()>(1);
        let check = move || {
            match at.lost_writes(host.as_ref()) {
                Ok(None) => {}
                Ok(Some(reason)) => note(host.as_ref(), &under_way.id, &reason),
                // Unmounted by now, most likely.
                Err(error) => tracing::debug!(volume = %under_way.id, %error, "cannot sync"),
            }
            drop(under_way);
            drop(done);
        };
        match thread::Builder::new().name("writeback-check".to_owned()).spawn(check) {
            // The channel is closed at the end, without a message.
            Ok(_) => drop(waiting.recv_timeout(CHECK_TIMEOUT)),
            Err(error) => tracing::debug!(%error, "cannot start a thread to look for lost writes"),
        }
    }

    /// To be called before the last mount of a volume is unmounted and its device is detached.
    pub(crate) fn check_written_back(&self, id: &VolumeId) -> Result<()> {
        if self.staged_watch().wait_for(id) && self.writeback_checks().wait_for(id) {
            return Ok(());
        }
        Err(Error::precondition(format!(
            "cannot unstage volume {id}: what was written to it is still being written back, and that does not end; \
             free some space of its pool, or repair its storage, and repeat the call"
        )))
    }

    /// Syncs before a copy. The kernel reports a lost write only once, so it is recorded.
    pub(crate) fn sync_before_copy(&self, id: &VolumeId, mount: &TargetPath) -> Result<()> {
        let Some(reason) = self.host().sync_filesystem(mount)? else { return Ok(()) };
        note(self.host().as_ref(), id, &reason);
        Err(Error::failed(
            format!("copy volume {id}"),
            format!(
                "data that was written to it before is lost: {reason}; repeat the call to copy what is left"
            ),
        ))
    }

    /// Lost writes come before everything else that is wrong.
    pub(crate) fn with_lost_writes(&self, id: &VolumeId, condition: Condition) -> Condition {
        with_lost_writes(self.host().as_ref(), id, condition)
    }
}

pub(crate) fn with_lost_writes(host: &dyn Host, id: &VolumeId, condition: Condition) -> Condition {
    let Some(reason) = host.lost_writes(id) else { return condition };
    let mut worst = Condition::of(vec![lost(&reason)], "");
    worst.extend(condition.into_problems());
    worst
}

fn note(host: &dyn Host, id: &VolumeId, reason: &str) {
    match host.note_lost_writes(id, reason) {
        Ok(false) => {}
        Ok(true) => tracing::error!(
            volume = %id,
            reason,
            "the kernel could not keep data that was written to the volume; check the data of its \
             workload, and the pool's free space and disk"
        ),
        Err(error) => tracing::error!(
            volume = %id,
            reason,
            %error,
            "the kernel could not keep data that was written to the volume, and this cannot be recorded \
             for the next start"
        ),
    }
}

fn lost(reason: &str) -> Problem {
    let message = format!(
        "data that was written to the volume since it was staged is lost: {reason}; check the data of \
         its workload, and the pool's free space and disk; reported until the volume is unstaged"
    );
    Problem::new(HealthReason::WritesLost, message)
}
