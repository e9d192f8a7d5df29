//! `orlop.pool`: what makes a directory a pool, and who uses it.
//!
//! The file is written under another name, locked, and renamed into place, so that it is never
//! seen empty and never seen without its owner's lock. It is not replaced afterwards: a lock is
//! on an inode, not on a name.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_model::{Error, PoolId, Reason, Result, only_copy};
use orlop_sys::file::{self, LockAttempt, LockOwner, Presence, RenameOutcome};
use orlop_sys::rand::random_bytes;
use serde::{Deserialize, Serialize};

use super::entering::enter;
use super::failure::cannot;
use super::layout::Layout;

pub(super) const NAME: &str = "orlop.pool";
const FORMAT: u32 = 1;
const LONGEST: usize = 1 << 20;
/// Longer than a doctor inspects pools that hang.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// How the pool keeps what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// In the directory itself.
    Plain,
    /// In a filesystem image that lies in the directory.
    Managed,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ImageHeader {
    format: u32,
    id: PoolId,
    kind: Kind,
}

/// Writes the header of a managed pool again, for a person to run.
pub(super) fn command_to_write(root: &Path, id: &PoolId) -> String {
    let path = only_copy::shell_word(&root.join(NAME));
    let text = format!("{{\"format\":{FORMAT},\"id\":\"{id}\",\"kind\":\"managed\"}}");
    format!("printf %s {} > {path}", only_copy::shell_word(Path::new(&text)))
}

/// All that is certain about a header of any version.
#[derive(Deserialize)]
struct ImageHeaderFormat {
    format: u32,
}

#[derive(Debug)]
pub(super) struct PoolHeader {
    path: PathBuf,
    id: PoolId,
    kind: Kind,
    inode: (u64, u64),
    /// Dropped before the lock: the next process to get the lock must not wait for this one.
    presence: Option<Presence>,
    _lock: file::Lock,
}

impl PoolHeader {
    pub(super) fn id(&self) -> &PoolId {
        &self.id
    }

    /// The directory that it makes a pool.
    pub(super) fn root(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// What the header says, even if a daemon serves the pool. `None`: it is no pool.
    pub(super) fn read(root: &Path) -> Result<Option<(PoolId, Kind)>> {
        let path = root.join(NAME);
        let text = match file::read_small(&path, LONGEST) {
            Err(error) if error.is_not_found() => return Ok(None),
            read => whole(&path, read, || "read the pool header".to_owned())?,
        };
        parse(&path, &text).map(|contents| Some((contents.id, contents.kind)))
    }

    /// `None`: another process uses the pool, or has left threads in it.
    pub(super) fn try_take_unused(root: &Path) -> Result<Option<Self>> {
        let path = root.join(NAME);
        let locking = || format!("lock {}", path.display());
        let Some(lock) = file::try_lock(&path).map_err(cannot(locking))? else { return Ok(None) };
        let presence = match Presence::try_alone(&Layout::new(root).staging()) {
            Ok(None) => return Ok(None),
            Err(error) if error.is_not_found() => None,
            found => found.map_err(cannot(locking))?,
        };
        Ok(Some(Self { presence, ..Self::locked(path, lock)? }))
    }

    /// `None`: this directory is no pool yet.
    pub(super) fn try_take(root: &Path) -> Result<Option<Self>> {
        let path = root.join(NAME);
        match fs::symlink_metadata(&path) {
            Ok(_) => Self::take(path).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot(|| format!("inspect {}", path.display()))(error)),
        }
    }

    fn take(path: PathBuf) -> Result<Self> {
        let opening = || format!("open the pool at {}", path.display());
        match file::lock_after_brief_owners(&path, LOCK_TIMEOUT).map_err(cannot(opening))? {
            LockAttempt::Taken(lock) => Self::locked(path, lock),
            LockAttempt::HeldBy(owner) => Err(in_use(&path, owner.as_ref())),
        }
    }

    fn locked(path: PathBuf, lock: file::Lock) -> Result<Self> {
        let opening = || format!("open the pool at {}", path.display());
        let contents = parse(&path, &whole(&path, file::read_small(&path, LONGEST), opening)?)?;
        let inode = inode_of(&fs::symlink_metadata(&path).map_err(cannot(opening))?);
        Ok(Self { path, id: contents.id, kind: contents.kind, inode, presence: None, _lock: lock })
    }

    /// Makes the directory a pool. Of several processes that try at once, one gets it and the
    /// others fail because it is in use.
    pub(super) fn create(root: &Path, staging: &Path, kind: Kind) -> Result<Self> {
        let creating = || format!("make a pool at {}", root.display());
        let contents = ImageHeader {
            format: FORMAT,
            id: PoolId::from_random(random_bytes().map_err(cannot(creating))?),
            kind,
        };
        let text =
            serde_json::to_vec(&contents).map_err(|e| Error::failed(creating(), Reason::of(e)))?;
        let path = root.join(NAME);
        let draft = staging.join(format!("{NAME}.{}", contents.id));

        file::create_file_durable(&draft, &text).map_err(cannot(creating))?;
        let lock =
            file::try_lock(&draft).map_err(cannot(creating))?.ok_or_else(|| in_use(&path, None))?;
        // A crash before this leaves a file in staging/, after it a pool.
        match file::rename_new(&draft, &path) {
            Ok(RenameOutcome::Renamed) => {}
            Ok(RenameOutcome::TargetExists) => {
                file::remove_tree(&draft).map_err(cannot(creating))?;
                return Self::take(path);
            }
            // The winner of a race swept our draft away.
            Err(error) if error.is_not_found() => return Err(in_use(&path, None)),
            Err(error) => return Err(cannot(creating)(error)),
        }
        let inode = inode_of(&fs::symlink_metadata(&path).map_err(cannot(creating))?);
        Ok(Self { path, id: contents.id, kind, inode, presence: None, _lock: lock })
    }

    /// To be called before anything is done in the pool; see [`enter`].
    pub(super) fn enter(&mut self, root: &Path, name: &str) -> Result<()> {
        self.presence = Some(enter(root, name)?);
        Ok(())
    }

    /// No thread of this process does anything in the pool any more.
    pub(super) fn leave(&self) {
        if let Some(presence) = &self.presence {
            presence.leave();
        }
    }

    /// Is the file that we hold the lock of still the one by which others find the pool?
    pub(super) fn check(&self) -> Result<()> {
        let checking = || format!("check the pool at {}", self.path.display());
        let there = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Error::unreachable(
                    checking(),
                    "the pool is gone: its directory was moved or its filesystem unmounted; move \
                     it back or mount it",
                ));
            }
            there => there.map_err(cannot(checking))?,
        };
        if inode_of(&there) != self.inode {
            return Err(Error::failed(
                checking(),
                "the pool header is another file than when the pool was opened: a filesystem was \
                 mounted over the pool, or the pool was replaced; restart the daemon to serve \
                 what is there now",
            ));
        }
        let read = file::read_small(&self.path, LONGEST);
        let contents = parse(&self.path, &whole(&self.path, read, checking)?)?;
        if contents.id != self.id {
            return Err(Error::failed(
                checking(),
                format!("the pool's id was {} and is now {}", self.id, contents.id),
            ));
        }
        Ok(())
    }
}

fn in_use(path: &Path, owner: Option<&LockOwner>) -> Error {
    let owner = owner.map(|owner| format!(": {owner}")).unwrap_or_default();
    Error::failed(
        format!("open the pool at {}", path.display()),
        format!(
            "another process uses this pool{owner}; stop it or give this daemon another directory"
        ),
    )
}

fn inode_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// What is no file, or too long for a mark, is a damaged mark.
fn whole(
    path: &Path,
    read: orlop_sys::Result<Vec<u8>>,
    doing: impl FnOnce() -> String,
) -> Result<Vec<u8>> {
    match read {
        Err(error) if error.is_refusal() => {
            Err(Error::damaged(format!("the pool header {}", path.display()), error.cause()))
        }
        read => read.map_err(cannot(doing)),
    }
}

pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<ImageHeader> {
    let what = || format!("the pool header {}", path.display());
    let damaged = |error| Error::damaged(what(), error);
    let version: ImageHeaderFormat = serde_json::from_slice(text).map_err(damaged)?;
    if version.format != FORMAT {
        return Err(Error::failed(
            format!("open the pool at {}", path.display()),
            format!(
                "it has format {}, this version of Orlop reads format {FORMAT}",
                version.format
            ),
        ));
    }
    serde_json::from_slice(text).map_err(damaged)
}

#[cfg(test)]
mod tests;
