//! Filesystems that are frozen while they are copied.
//!
//! A workload must never stay frozen because of us. Four mechanisms make sure of that: the caller thaws;
//! a watchdog thaws when the caller is late; a helper process thaws when this one is killed; and a
//! marker under the run directory, written before the freeze, lets the next process thaw what
//! neither could.

mod watchdog;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, HostFreezing, NameDigest, Reason, Result, TargetPath};
use orlop_sys::filesystem::{self as fs, ThawOutcome};
use orlop_sys::thaw_helper::{HelperCommand, ThawHelper};

use super::LinuxHost;
use super::failure::cannot;
use super::mounting::mount_at;
use super::run_files::RunFiles;
use watchdog::{FreezeState, Watchdog};

/// No configured limit is above this; it keeps the arithmetic of deadlines from overflowing.
const MAX_FREEZE_LIMIT: Duration = Duration::from_secs(60 * 60);
/// Far more than it takes on a disk that answers.
const THAW_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Freezer {
    limit: Duration,
    markers: Arc<FreezeMarkers>,
    watchdog: Watchdog,
}

impl HostFreezing for LinuxHost {
    fn freeze(&self, mount: &TargetPath) -> Result<()> {
        self.freezer.freeze(mount)
    }

    fn ensure_thawed(&self, mount: &TargetPath) -> Result<bool> {
        self.freezer.ensure_thawed(mount)
    }
}

impl Freezer {
    pub(super) fn new(markers: PathBuf, limit: Duration, helper: Option<HelperCommand>) -> Self {
        let markers =
            Arc::new(FreezeMarkers { files: RunFiles::new(markers), helper: helper.map(start) });
        Self {
            limit: limit.min(MAX_FREEZE_LIMIT),
            watchdog: Watchdog::new(Arc::clone(&markers)),
            markers,
        }
    }

    /// For one who only ends what others began.
    pub(super) fn without_helper(markers: PathBuf) -> Self {
        Self::new(markers, MAX_FREEZE_LIMIT, None)
    }

    pub(super) fn freeze(&self, mount: &TargetPath) -> Result<()> {
        // FIFREEZE goes by path: where no volume is mounted, it would stop the machine's own
        // filesystem.
        if mount_at(mount)?.is_none_or(|there| there.is_device_node) {
            return Err(Error::precondition(format!(
                "cannot freeze {mount}: no filesystem is mounted there; stage the volume again"
            )));
        }
        self.watchdog.begin(mount)?;
        match self.markers.freeze(mount) {
            // The time starts now: FIFREEZE itself may wait long for writers, and a thaw in the
            // middle of it would have no effect.
            Ok(()) => {
                self.watchdog.watch(mount, Instant::now() + self.limit);
                Ok(())
            }
            Err(error) => {
                self.watchdog.forget(mount);
                Err(error)
            }
        }
    }

    /// True if nothing, not even the watchdog, thawed it before.
    pub(super) fn ensure_thawed(&self, mount: &TargetPath) -> Result<bool> {
        let freeze = self.watchdog.claim(mount);
        let outcome = self.markers.thaw(mount).inspect_err(|_| {
            if freeze.is_some() {
                self.watchdog.retry(mount);
            }
        })?;
        self.watchdog.forget(mount);
        let in_time = match freeze {
            Some(FreezeState::Until(_)) => true,
            Some(FreezeState::InHand | FreezeState::Overdue(_) | FreezeState::Expired) | None => {
                false
            }
        };
        Ok(in_time && outcome == ThawOutcome::Thawed)
    }

    /// Mounts that were marked as frozen and not thawed since.
    pub(super) fn marked(&self) -> Result<Vec<TargetPath>> {
        self.markers.mounts()
    }

    /// Takes its marker away as well; not frozen any more is fine.
    pub(super) fn thaw_marked(&self, mount: &TargetPath) -> Result<()> {
        self.markers.thaw(mount).map(|_| ())
    }

    pub(super) fn begin_to_thaw_left_frozen(&self) -> Result<ThawsUnderWay> {
        let deadline = Instant::now() + THAW_TIMEOUT;
        let mut thaws = Vec::new();
        for mount in self.markers.mounts()? {
            let thawed = self.begin_to_thaw(&mount)?;
            thaws.push((mount, thawed));
        }
        Ok(ThawsUnderWay { deadline, thaws })
    }

    /// Nothing here freezes it until it is thawed.
    fn begin_to_thaw(&self, mount: &TargetPath) -> Result<Receiver<()>> {
        let (done, thawed) = mpsc::sync_channel(1);
        let (markers, watchdog, mount) =
            (Arc::clone(&self.markers), self.watchdog.clone(), mount.clone());
        watchdog.begin(&mount)?;
        let thaw = move || {
            let outcome = markers.thaw(&mount);
            watchdog.forget(&mount);
            // The receiver is gone only if it took too long.
            let _ = done.send(());
            report_thaw_of_left_frozen(&mount, outcome);
        };
        let thread = thread::Builder::new().name("thaw".to_owned());
        thread.spawn(thaw).map_err(|error| Error::failed("start a thread", Reason::of(error)))?;
        Ok(thawed)
    }
}

/// Thawing may write, so a filesystem on a hung pool is thawed when the pool answers. Neither the other filesystems
/// nor the start wait for it.
pub struct ThawsUnderWay {
    deadline: Instant,
    thaws: Vec<(TargetPath, Receiver<()>)>,
}

impl ThawsUnderWay {
    pub fn wait(self) {
        for (mount, thawed) in self.thaws {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if thawed.recv_timeout(left).is_err() {
                tracing::error!(
                    %mount,
                    "the filesystem is still frozen: thawing it waits for its pool to respond"
                );
            }
        }
    }
}

/// Now, for a freeze must not wait for a program to start. Without a helper a freeze is still safe
/// as long as this process, or the next one, runs.
fn start(command: HelperCommand) -> ThawHelper {
    let helper = ThawHelper::new(command);
    warn_without_helper(helper.ensure_running());
    helper
}

fn warn_without_helper(outcome: orlop_sys::Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!(
            %error,
            "no thaw helper: if this process is killed in the middle of a snapshot, the volume's \
             writers wait for its restart"
        );
    }
}

/// What is frozen, registered with all who could have to thaw it.
struct FreezeMarkers {
    /// Under a digest of the path, which may be longer than a file name.
    files: RunFiles,
    helper: Option<ThawHelper>,
}

impl FreezeMarkers {
    fn freeze(&self, mount: &TargetPath) -> Result<()> {
        let name = marker_name(mount);
        // Before the freeze: after it, a crash could leave it without a marker.
        self.files.write(&name, mount.to_string().as_bytes())?;
        self.tell_helper(|helper| helper.register(mount.as_path()));
        fs::freeze(mount.as_path()).map_err(|failure| {
            self.tell_helper(|helper| helper.unregister(mount.as_path()));
            if let Err(error) = self.files.ensure_removed(&name) {
                tracing::warn!(%mount, %error, "cannot remove the marker of a freeze that failed");
            }
            match failure.is_busy() {
                true => Error::precondition(format!(
                    "cannot freeze the filesystem at {mount}: another program froze it; thaw it \
                     (fsfreeze -u) and try again"
                )),
                false => cannot("freeze a filesystem")(failure),
            }
        })
    }

    fn thaw(&self, mount: &TargetPath) -> Result<ThawOutcome> {
        let outcome = match fs::ensure_thawed(mount.as_path()) {
            // Without its mount point, nothing is mounted there.
            Err(failure) if failure.is_not_found() => ThawOutcome::WasNotFrozen,
            outcome => outcome.map_err(cannot("thaw a filesystem"))?,
        };
        self.tell_helper(|helper| helper.unregister(mount.as_path()));
        self.files.ensure_removed(&marker_name(mount))?;
        Ok(outcome)
    }

    fn tell_helper(&self, tell: impl FnOnce(&ThawHelper) -> orlop_sys::Result<()>) {
        if let Some(helper) = &self.helper {
            warn_without_helper(tell(helper));
        }
    }

    fn marked_mount(&self, name: &str) -> Result<TargetPath> {
        let contents = self.files.read(name)?.unwrap_or_default();
        let text = String::from_utf8(contents)
            .map_err(|error| Error::failed("read the marker of a freeze", Reason::of(error)))?;
        TargetPath::parse("marker", &text)
    }

    fn mounts(&self) -> Result<Vec<TargetPath>> {
        let mut mounts = Vec::new();
        for name in self.files.names()? {
            match self.marked_mount(&name) {
                Ok(mount) => mounts.push(mount),
                // Most likely not a marker of this daemon, so it is left alone; the others are thawed.
                Err(error) => {
                    let marker = self.files.path(&name);
                    tracing::warn!(
                        marker = %marker.display(),
                        %error,
                        "ignoring a file that is not the marker of a freeze"
                    );
                }
            }
        }
        Ok(mounts)
    }
}

fn report_thaw_of_left_frozen(mount: &TargetPath, outcome: Result<ThawOutcome>) {
    match outcome {
        Ok(ThawOutcome::Thawed) => {
            tracing::warn!(%mount, "thawed a filesystem that was left frozen");
        }
        Ok(ThawOutcome::WasNotFrozen) => {}
        // Its marker stays, so the next start tries again.
        Err(error) => {
            tracing::error!(
                %mount,
                %error,
                "cannot thaw a filesystem that was left frozen; the next start tries again"
            );
        }
    }
}

fn marker_name(mount: &TargetPath) -> String {
    NameDigest::of_text(&mount.to_string()).as_str().to_owned()
}

#[cfg(test)]
mod tests;
