//! The directory under /run with all that Orlop knows of this boot.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result, TargetPath, VolumeId};
use orlop_sys::file::{self, Lock, LockAttempt, LockOwner, Presence};

use super::failure::{cannot, cannot_io};

/// How long a start waits for threads of a killed daemon. The directory is in memory, so a thread that is left
/// after this time is blocked by a device, not by the directory (decision 0041).
const LEFT_THREADS_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than a doctor inspects pools that hang.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

const PARTS: [&str; 7] =
    ["volumes", "frozen", "limited", "inline", "pools", "lost-writes", "io-before"];

pub(super) struct RunDirectory {
    root: TargetPath,
}

/// What the doctor finds: a daemon, or none, and then none starts as long as this lives.
pub(super) struct RunDirectoryClaim {
    pub(super) by_daemon: bool,
    _lock: Option<RunDirectoryLock>,
}

/// For as long as it lives, this process is the only daemon in the directory.
pub(super) struct RunDirectoryLock {
    /// Ends before the lock does: the process that gets that must not wait for us.
    presence: Option<Presence>,
    _lock: Lock,
}

impl RunDirectoryLock {
    /// No thread of this process does anything more there that a successor has to wait for.
    pub(super) fn leave(&self) {
        if let Some(presence) = &self.presence {
            presence.leave();
        }
    }
}

impl RunDirectory {
    /// Makes what is missing of it.
    pub(super) fn ensure(path: &Path) -> Result<Self> {
        let run_dir = Self::at(path)?;
        for part in PARTS {
            ensure_private(&run_dir.root.as_path().join(part))?;
        }
        Ok(run_dir)
    }

    pub(super) fn at(path: &Path) -> Result<Self> {
        let text = path.to_str().ok_or_else(|| unusable(path, &"it is not UTF-8"))?;
        let root = TargetPath::parse("run_dir", text).map_err(|error| unusable(path, &error))?;
        Ok(Self { root })
    }

    /// Would [`Self::ensure`] find something else where a directory is to be? Changes nothing.
    pub(super) fn check(path: &Path) -> Result<()> {
        let root = Self::at(path)?.root;
        for part in PARTS.map(|part| root.as_path().join(part)) {
            if part.metadata().is_ok_and(|found| !found.is_dir()) {
                return Err(unusable(&part, &"it is not a directory; remove it"));
            }
        }
        Ok(())
    }

    pub(super) fn take(&self) -> Result<RunDirectoryLock> {
        let attempt = file::lock_after_brief_owners(&self.lock_file(), LOCK_TIMEOUT);
        match attempt.map_err(cannot("lock the run directory"))? {
            LockAttempt::Taken(lock) => {
                Ok(RunDirectoryLock { presence: Some(self.enter()?), _lock: lock })
            }
            LockAttempt::HeldBy(owner) => Err(self.in_use_by(owner)),
        }
    }

    fn in_use_by(&self, owner: Option<LockOwner>) -> Error {
        let owner = owner
            .map_or_else(|| "which this process cannot see".to_owned(), |owner| owner.to_string());
        Error::precondition(format!(
            "another process uses the run directory {}: {owner}; stop it first, or, if it \
             serves other pools, give this daemon another ORLOP_RUN_DIR or ORLOP_DRIVER_NAME",
            self.root
        ))
    }

    /// Waits for the threads of a killed daemon, for a while.
    fn enter(&self) -> Result<Presence> {
        const DOING: &str = "use the run directory";
        let begun = Instant::now();
        loop {
            if let Some(alone) = Presence::try_alone(&self.volumes()).map_err(cannot(DOING))? {
                return Ok(alone);
            }
            if begun.elapsed() >= LEFT_THREADS_TIMEOUT {
                tracing::warn!(
                    "threads of the previous daemon are still blocked in the kernel; starting \
                     beside them"
                );
                return Presence::beside_others(&self.volumes()).map_err(cannot(DOING));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Makes nothing: where no daemon ever was, there is no file to lock. Threads that a daemon left
    /// behind are as good as a daemon: what they do last is not seen yet.
    pub(super) fn claim(&self) -> Result<RunDirectoryClaim> {
        const DOING: &str = "check whether a daemon runs";
        let file = self.lock_file();
        if !file.try_exists().map_err(cannot_io(DOING))? {
            return Ok(RunDirectoryClaim { by_daemon: false, _lock: None });
        }
        let Some(lock) = file::try_lock(&file).map_err(cannot(DOING))? else {
            return Ok(RunDirectoryClaim { by_daemon: true, _lock: None });
        };
        let presence = match Presence::try_alone(&self.volumes()) {
            Ok(None) => return Ok(RunDirectoryClaim { by_daemon: true, _lock: None }),
            Err(error) if error.is_not_found() => None,
            found => found.map_err(cannot(DOING))?,
        };
        Ok(RunDirectoryClaim {
            by_daemon: false,
            _lock: Some(RunDirectoryLock { presence, _lock: lock }),
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.root.as_path()
    }

    fn lock_file(&self) -> PathBuf {
        self.root.as_path().join("daemon.lock")
    }

    pub(super) fn volumes(&self) -> PathBuf {
        self.root.as_path().join("volumes")
    }

    pub(super) fn frozen(&self) -> PathBuf {
        self.root.as_path().join("frozen")
    }

    pub(super) fn limited(&self) -> PathBuf {
        self.root.as_path().join("limited")
    }

    pub(super) fn inline(&self) -> PathBuf {
        self.root.as_path().join("inline")
    }

    pub(super) fn lost_writes(&self) -> PathBuf {
        self.root.as_path().join("lost-writes")
    }

    pub(super) fn io_before(&self) -> PathBuf {
        self.root.as_path().join("io-before")
    }

    pub(super) fn pools(&self) -> PathBuf {
        self.root.as_path().join("pools")
    }

    pub(super) fn private_stage(&self, id: &VolumeId) -> Result<TargetPath> {
        TargetPath::parse("run_dir", &format!("{}/inline/{id}", self.root))
    }
}

fn unusable(path: &Path, reason: &dyn Display) -> Error {
    Error::invalid("ORLOP_RUN_DIR", format!("{} cannot be used: {reason}", path.display()))
}

/// The root may be the operator's, with a mode of their choice; what is below is closed.
fn ensure_private(directory: &Path) -> Result<()> {
    let doing = format!("prepare {} in the run directory", directory.display());
    file::ensure_private_directory(directory)
        .and_then(|()| file::close_to_others(directory))
        .map_err(cannot(&doing))
}
