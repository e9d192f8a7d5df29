//! The directory under /run with all that Orlop knows of this boot.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use orlop_model::{Error, Result, TargetPath, VolumeId};
use orlop_sys::file::{self, Lock};

use super::failure::Doing;

pub(super) struct RunDirectory {
    root: TargetPath,
}

/// What somebody who only looks finds: a daemon, or none, and then none starts as long as this lives.
pub(super) struct Claim {
    pub(super) by_daemon: bool,
    _lock: Option<Lock>,
}

impl RunDirectory {
    /// Makes what is missing of it.
    pub(super) fn ensure(path: &Path) -> Result<Self> {
        let run_dir = Self::at(path)?;
        for part in ["volumes", "frozen", "limited", "inline", "pools"] {
            ensure_private(&run_dir.root.as_path().join(part))?;
        }
        Ok(run_dir)
    }

    pub(super) fn at(path: &Path) -> Result<Self> {
        let unusable = |reason: &dyn Display| {
            let path = path.display();
            Error::precondition(format!("ORLOP_RUN_DIR {path} cannot be used: {reason}"))
        };
        let text = path.to_str().ok_or_else(|| unusable(&"it is not UTF-8"))?;
        let root = TargetPath::parse("run_dir", text).map_err(|error| unusable(&error))?;
        Ok(Self { root })
    }

    /// For as long as the lock lives, this process is the only daemon in this directory.
    pub(super) fn lock(&self) -> Result<Lock> {
        let lock = file::try_lock(&self.lock_file()).doing("lock the run directory")?;
        lock.ok_or_else(|| {
            Error::precondition(format!(
                "another daemon uses the run directory {}; stop it first. One that does not end \
                 waits for a pool that hangs: repair that pool. Only a second daemon with pools of \
                 its own wants another ORLOP_RUN_DIR or ORLOP_DRIVER_NAME",
                self.root
            ))
        })
    }

    /// Makes nothing: where no daemon ever was, there is no file to lock.
    pub(super) fn claim(&self) -> Result<Claim> {
        const DOING: &str = "look for a daemon";
        let file = self.lock_file();
        if !file.try_exists().doing(DOING)? {
            return Ok(Claim { by_daemon: false, _lock: None });
        }
        let lock = file::try_lock(&file).doing(DOING)?;
        Ok(Claim { by_daemon: lock.is_none(), _lock: lock })
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

    pub(super) fn pools(&self) -> PathBuf {
        self.root.as_path().join("pools")
    }

    pub(super) fn private_stage(&self, id: &VolumeId) -> Result<TargetPath> {
        TargetPath::parse("run_dir", &format!("{}/inline/{id}", self.root))
    }
}

impl Display for RunDirectory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}

/// The root may be the operator's, with a mode of their choice; what is below is closed.
fn ensure_private(directory: &Path) -> Result<()> {
    let doing = format!("prepare {} in the run directory", directory.display());
    file::ensure_private_directory(directory)
        .and_then(|()| file::close_to_others(directory))
        .doing(&doing)
}
