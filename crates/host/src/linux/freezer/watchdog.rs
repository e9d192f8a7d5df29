//! Thaws what was frozen for too long. Its thread lives as long as something is frozen.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orlop_model::{Error, Reason, Result, TargetPath};

use super::FreezeMarkers;

/// How soon a thaw that the kernel refused is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FreezeState {
    /// A thread is freezing or thawing it at this moment; all others wait.
    InHand,
    Until(Instant),
    /// The kernel refused the thaw; to be tried again then.
    Overdue(Instant),
    /// Thawed here, and the call that froze it has not come back yet.
    Expired,
}

impl FreezeState {
    fn due(self) -> Option<Instant> {
        match self {
            Self::Until(due) | Self::Overdue(due) => Some(due),
            Self::InHand | Self::Expired => None,
        }
    }
}

#[derive(Clone)]
pub(super) struct Watchdog {
    inner: Arc<WatchdogInner>,
}

struct WatchdogInner {
    markers: Arc<FreezeMarkers>,
    watched: Mutex<Watched>,
    changed: Condvar,
}

#[derive(Default)]
struct Watched {
    freezes: HashMap<TargetPath, FreezeState>,
    has_thread: bool,
}

impl Watchdog {
    pub(super) fn new(markers: Arc<FreezeMarkers>) -> Self {
        let inner = WatchdogInner { markers, watched: Mutex::default(), changed: Condvar::new() };
        Self { inner: Arc::new(inner) }
    }

    /// Takes a mount in hand that is about to be frozen. Starts the thread now: once the
    /// filesystem is frozen, it would be too late to find out that there can be none.
    pub(super) fn begin(&self, mount: &TargetPath) -> Result<()> {
        let mut watched = self.inner.lock();
        match watched.freezes.get(mount) {
            None | Some(FreezeState::Expired) => {}
            Some(FreezeState::InHand | FreezeState::Until(_) | FreezeState::Overdue(_)) => {
                return Err(Error::precondition(format!(
                    "cannot freeze the filesystem at {mount}: it is frozen already; try again"
                )));
            }
        }
        if !watched.has_thread {
            let inner = Arc::clone(&self.inner);
            std::thread::Builder::new()
                .name("thaw-watchdog".to_owned())
                .spawn(move || inner.run())
                .map_err(|error| {
                    Error::failed("start the thread that limits a freeze", Reason::of(error))
                })?;
            watched.has_thread = true;
        }
        watched.freezes.insert(mount.clone(), FreezeState::InHand);
        Ok(())
    }

    /// Takes a mount in hand that is about to be thawed, once no other thread has it: a thaw of
    /// ours that comes late must not end the next freeze. Tells what it was until now.
    pub(super) fn claim(&self, mount: &TargetPath) -> Option<FreezeState> {
        let in_hand =
            |watched: &mut Watched| watched.freezes.get(mount) == Some(&FreezeState::InHand);
        let free = self.inner.changed.wait_while(self.inner.lock(), in_hand);
        let mut watched = free.unwrap_or_else(PoisonError::into_inner);
        let freeze = watched.freezes.get_mut(mount)?;
        Some(std::mem::replace(freeze, FreezeState::InHand))
    }

    pub(super) fn watch(&self, mount: &TargetPath, until: Instant) {
        self.inner.put(mount, FreezeState::Until(until));
    }

    pub(super) fn retry(&self, mount: &TargetPath) {
        self.inner.put(mount, FreezeState::Overdue(Instant::now() + RETRY_INTERVAL));
    }

    pub(super) fn forget(&self, mount: &TargetPath) {
        self.inner.lock().freezes.remove(mount);
        self.inner.changed.notify_all();
    }
}

impl WatchdogInner {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: Arc<Self>) {
        let mut watched = self.lock();
        while watched.has_something_to_watch() {
            let late = watched.take_late(Instant::now());
            watched = if late.is_empty() {
                self.wait(watched)
            } else {
                // The kernel may take its time: others can freeze and thaw in that time.
                drop(watched);
                self.thaw_all_late(late);
                self.lock()
            };
        }
        watched.has_thread = false;
    }

    /// Each in a thread: to thaw may be to write, so neither a filesystem on a disk that hangs nor a log
    /// line that cannot be written may hold up the others.
    fn thaw_all_late(self: &Arc<Self>, late: Vec<TargetPath>) {
        let mut without_thread = Vec::new();
        for mount in late {
            let (inner, thawed_there) = (Arc::clone(self), mount.clone());
            let thread = std::thread::Builder::new().name("thaw".to_owned());
            if thread.spawn(move || inner.thaw_late(&thawed_there)).is_err() {
                without_thread.push(mount);
            }
        }
        without_thread.iter().for_each(|mount| self.thaw_late(mount));
    }

    fn wait<'a>(&self, watched: MutexGuard<'a, Watched>) -> MutexGuard<'a, Watched> {
        let next = watched.freezes.values().filter_map(|freeze| freeze.due()).min();
        match next {
            None => self.changed.wait(watched).unwrap_or_else(PoisonError::into_inner),
            Some(due) => {
                let remaining = due.saturating_duration_since(Instant::now());
                let woken = self.changed.wait_timeout(watched, remaining);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// The state comes before the log: the call that froze it waits for the state.
    fn thaw_late(&self, mount: &TargetPath) {
        match self.markers.thaw(mount) {
            Ok(_) => {
                self.put(mount, FreezeState::Expired);
                tracing::error!(
                    %mount,
                    "a snapshot held its filesystem frozen for too long; the filesystem was \
                     thawed"
                );
            }
            Err(error) => {
                self.put(mount, FreezeState::Overdue(Instant::now() + RETRY_INTERVAL));
                tracing::error!(
                    %mount,
                    %error,
                    "a snapshot holds its filesystem frozen for too long, and thawing it \
                     failed"
                );
            }
        }
    }

    fn put(&self, mount: &TargetPath, freeze: FreezeState) {
        self.lock().freezes.insert(mount.clone(), freeze);
        self.changed.notify_all();
    }
}

impl Watched {
    fn has_something_to_watch(&self) -> bool {
        self.freezes.values().any(|freeze| *freeze != FreezeState::Expired)
    }

    fn take_late(&mut self, now: Instant) -> Vec<TargetPath> {
        let mut late = Vec::new();
        for (mount, freeze) in &mut self.freezes {
            if freeze.due().is_some_and(|due| due <= now) {
                *freeze = FreezeState::InHand;
                late.push(mount.clone());
            }
        }
        late
    }
}
