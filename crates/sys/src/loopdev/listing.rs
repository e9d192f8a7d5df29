//! All attached devices, with what only the devices themselves know.
//!
//! LOOP_GET_STATUS asks the backing file for its inode. A device of another program, on a file whose
//! server is dead, must not keep a pool from opening.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{BackedDevice, LoopDevice, LoopStatus, all_backed, is_closed, status};
use crate::error::{Context, Error, Result};
use crate::mounts::{self, MountEntry};

/// For all devices of other programs together; the usual answer takes microseconds.
const LISTING_TIMEOUT: Duration = Duration::from_secs(5);

/// Further threads ask the remaining devices each time that this long has passed.
const GROWTH_INTERVAL: Duration = Duration::from_millis(50);

/// Devices that did not answer in time. A thread still waits for each, and keeps it from being
/// attached to another file, so they are not asked again: there is never more than one such thread
/// for a device and a caller.
static UNANSWERED: Mutex<Vec<LoopDevice>> = Mutex::new(Vec::new());

fn unanswered() -> MutexGuard<'static, Vec<LoopDevice>> {
    UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner)
}

type Answer = (LoopDevice, Result<Option<LoopStatus>>);

/// All devices that are attached to something, ours or not; without those that this process may not
/// open, and those on a file that cannot be asked, or that is itself a mount whose server may not answer,
/// as an exported image is; see [`super::backing`].
///
/// Devices whose file `may_be_own` are waited for however long it takes: one that is left out would
/// be attached a second time. Others are left out unless they answer soon. The file's path is as sysfs
/// shows it, without what the kernel adds to that of a deleted file: only its end is certain, because
/// the file may have been opened in another mount namespace.
pub fn attached(may_be_own: impl Fn(&Path) -> bool) -> Result<Vec<LoopStatus>> {
    let remote = mounts::all_mounts()?.into_iter().filter(MountEntry::is_remote);
    let remote: HashSet<_> = remote.map(|mount| mount.mount_point).collect();
    let mut all = all_backed()?;
    all.retain(|there| !remote.contains(&there.file));
    let (own, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|there| may_be_own(without_deletion(&there.file)));
    let mut found = Vec::new();
    for answer in own.iter().map(|there| status(&there.device)).chain(answers_of(others)?) {
        match answer {
            Err(error) if is_out_of_reach(&error) || error.errno().is_some_and(is_closed) => {}
            status => found.extend(status?),
        }
    }
    Ok(found)
}

/// The devices on this very file, among those whose file `may_be_it`, by its path as in [`attached`].
/// A device that does not answer soon is left out: `file` answers, so that device is on another file.
pub fn attached_to(file: &Path, may_be_it: impl Fn(&Path) -> bool) -> Result<Vec<BackedDevice>> {
    let there = std::fs::symlink_metadata(file).on("stat", file)?;
    let wanted = (there.dev(), there.ino());
    let mut likely = all_backed()?;
    likely.retain(|there| may_be_it(without_deletion(&there.file)));
    let mut on_it = HashSet::new();
    for answer in answers_of(likely.clone())? {
        match answer {
            Err(error) if is_out_of_reach(&error) || error.errno().is_some_and(is_closed) => {}
            status => on_it.extend(
                status?
                    .filter(|it| (it.backing_device, it.backing_inode) == wanted)
                    .map(|it| it.device),
            ),
        }
    }
    // Devices that this process may not open are recognised by the path of their file alone.
    let path = std::fs::canonicalize(file).on("resolve", file)?;
    let is_closed_on_it = |there: &BackedDevice| {
        there.file == path && there.device.open(OFlags::RDONLY).is_err_and(is_closed)
    };
    likely.retain(|there| on_it.contains(&there.device) || is_closed_on_it(there));
    Ok(likely)
}

/// A file of a FUSE server whose mount is gone, or on a filesystem that has shut down after errors. It
/// belongs to another program, or its pool reports the error itself.
fn is_out_of_reach(error: &Error) -> bool {
    matches!(error.errno(), Some(Errno::NOTCONN | Errno::STALE | Errno::IO))
}

fn without_deletion(file: &Path) -> &Path {
    let shown = file.to_str().and_then(|text| text.strip_suffix(" (deleted)"));
    shown.map_or(file, Path::new)
}

fn answers_of(mut devices: Vec<BackedDevice>) -> Result<Vec<Result<Option<LoopStatus>>>> {
    {
        let unanswered = unanswered();
        devices.retain(|there| !unanswered.contains(&there.device));
    }
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let (queue, answers) = Queue::of(&devices, status);
    queue.start_thread()?;
    let given = within_timeout(&queue, &answers, devices.len());
    concluded(&queue, &answers, given, devices)
}

/// Gives up what has not answered. A device that was not even asked may be on the very file that a caller is about
/// to attach, so that is an error.
fn concluded(
    queue: &Queue,
    answers: &Receiver<Answer>,
    mut given: Vec<Answer>,
    mut devices: Vec<BackedDevice>,
) -> Result<Vec<Result<Option<LoopStatus>>>> {
    // The lock is held, so that no answer arrives between the last check and this note.
    let mut unanswered = unanswered();
    given.extend(answers.try_iter());
    let never_asked = queue.close();
    let answered: HashSet<_> = given.iter().map(|(device, _)| device).collect();
    devices.retain(|there| !answered.contains(&there.device));
    for there in devices.into_iter().filter(|there| !never_asked.contains(&there.device)) {
        tracing::warn!(
            device = %there.device.path().display(),
            file = %there.file.display(),
            "a loop device is not listed: its file does not answer; if the file's server is dead, end \
             it and detach the device"
        );
        unanswered.push(there.device);
    }
    if let Some(device) = never_asked.first() {
        let reason = "other devices do not answer, and no further thread can be started";
        return Err(Error::refused("read the status of", &device.path(), reason));
    }
    Ok(given.into_iter().map(|(_, status)| status).collect())
}

type Ask = fn(&LoopDevice) -> Result<Option<LoopStatus>>;

/// Devices to ask, one after the other by one thread, which is enough for hundreds that answer at once. While it
/// takes longer, there are soon twice as many threads, and so on: a device that hangs costs a thread, and slow ones
/// are asked side by side.
struct Queue {
    waiting: Mutex<Vec<LoopDevice>>,
    answer: Sender<Answer>,
    ask: Ask,
}

impl Queue {
    fn of(devices: &[BackedDevice], ask: Ask) -> (Arc<Self>, Receiver<Answer>) {
        let waiting = devices.iter().rev().map(|there| there.device.clone()).collect();
        let (answer, answers) = channel();
        (Arc::new(Self { waiting: Mutex::new(waiting), answer, ask }), answers)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<LoopDevice>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<LoopDevice> {
        self.waiting().pop()
    }

    /// Ends the queue, and returns the devices that were not asked.
    fn close(&self) -> Vec<LoopDevice> {
        std::mem::take(&mut *self.waiting())
    }

    fn start_thread(self: &Arc<Self>) -> Result<()> {
        let queue = Arc::clone(self);
        let ask = move || {
            while let Some(device) = queue.next() {
                let status = (queue.ask)(&device);
                let mut unanswered = unanswered();
                unanswered.retain(|hung| *hung != device);
                // The caller may have given up.
                let _ = queue.answer.send((device, status));
            }
        };
        let started = std::thread::Builder::new().name("loop-status".to_owned()).spawn(ask);
        started.map(drop).on("start a thread to ask the devices of", Path::new("/sys/block"))
    }
}

/// The answers that come within [`LISTING_TIMEOUT`], of so many devices.
fn within_timeout(queue: &Arc<Queue>, answers: &Receiver<Answer>, devices: usize) -> Vec<Answer> {
    let mut now = Instant::now();
    let deadline = now + LISTING_TIMEOUT;
    let mut growth = now + GROWTH_INTERVAL;
    let mut given = Vec::new();
    let mut threads = 1;
    while given.len() < devices && now < deadline {
        // No disconnection: the queue has a sender.
        given.extend(answers.recv_timeout(deadline.min(growth).saturating_duration_since(now)));
        now = Instant::now();
        if now >= growth {
            let waiting = queue.waiting().len();
            // If no thread can be started, the running ones go on.
            let more = (0..threads.min(waiting)).take_while(|_| queue.start_thread().is_ok());
            threads += more.count();
            growth = now + GROWTH_INTERVAL;
        }
    }
    given
}

#[cfg(test)]
mod tests;
