//! The layout of a pool's directory.
//!
//! ```text
//! volumes/ID/{record.json,data}     snapshots/ID/{record.json,data}
//! groups/ID.json                    group-snapshots/ID.json
//! group-snapshots/ID.unfinished     while it is created or deleted: without ID.json, a start removes its members
//! staging/ID.N                      drafts, removed at start; also template.N, moment.N (a subvolume
//!                                   snapshot), orlop.pool.ID and pool.xfs.ID. Orlop leaves other names
//!                                   alone, here and in trash/.
//! trash/ID.N                        deleted: renamed here first, then freed
//! set-aside/ID.N                    quarantined objects; kept, never used
//! served-by.json                    the node that served the pool last
//! .ballast                          the emergency reserve
//! ```

use std::ffi::OsStr;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use orlop_model::{PoolId, Result, SnapshotId, VolumeId};
use orlop_sys::file::{BackingKind, RenameOutcome};
use orlop_sys::{btrfs, file};

use super::failure::cannot;
use super::{managed, pool_header};

const VOLUMES: &str = "volumes";
const SNAPSHOTS: &str = "snapshots";
const GROUPS: &str = "groups";
const GROUP_SNAPSHOTS: &str = "group-snapshots";
pub(super) const STAGING: &str = "staging";
const TRASH: &str = "trash";
/// Made when it is needed. Not called lost+found, as ext4 has a directory of that name.
const QUARANTINE: &str = "set-aside";
/// Names in staging/ beside those of drafts, which are ids.
pub(super) const TEMPLATE: &str = "template";
pub(super) const SUBVOLUME_SNAPSHOT: &str = "moment";
const DIRECTORIES: [&str; 6] = [VOLUMES, SNAPSHOTS, GROUPS, GROUP_SNAPSHOTS, STAGING, TRASH];

#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    /// Makes the names in staging/ and trash/ unique. It starts at 0, because orphans are removed from both before the
    /// first use.
    next_number: AtomicU64,
}

impl Layout {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), next_number: AtomicU64::new(0) }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn volumes(&self) -> PathBuf {
        self.volumes_under(&self.root)
    }

    /// In a copy of the pool's directory.
    pub(super) fn volumes_under(&self, root: &Path) -> PathBuf {
        root.join(VOLUMES)
    }

    pub(super) fn snapshots(&self) -> PathBuf {
        self.root.join(SNAPSHOTS)
    }

    pub(super) fn volume_groups(&self) -> PathBuf {
        self.root.join(GROUPS)
    }

    pub(super) fn group_snapshots(&self) -> PathBuf {
        self.root.join(GROUP_SNAPSHOTS)
    }

    pub(super) fn staging(&self) -> PathBuf {
        self.root.join(STAGING)
    }

    pub(super) fn trash(&self) -> PathBuf {
        self.root.join(TRASH)
    }

    pub(super) fn quarantine(&self) -> PathBuf {
        self.root.join(QUARANTINE)
    }

    pub(super) fn new_in_staging(&self, name: &impl Display) -> PathBuf {
        self.unique(STAGING, name)
    }

    /// Renames an object into the trash, durably: after this it no longer exists. Its space is freed when the returned
    /// directory is removed. `None`: there was no such object.
    pub(super) fn move_to_trash(
        &self,
        directory: &Path,
        name: &impl Display,
    ) -> orlop_sys::Result<Option<ObjectDir>> {
        loop {
            let trash = ObjectDir::new(self.unique(TRASH, name));
            match file::rename_new(directory, trash.directory()) {
                Ok(RenameOutcome::Renamed) => return Ok(Some(trash)),
                // An orphan that could not be removed at start.
                Ok(RenameOutcome::TargetExists) => {}
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn unique(&self, directory: &str, name: &impl Display) -> PathBuf {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.root.join(directory).join(format!("{name}.{number}"))
    }

    pub(super) fn ensure(&self) -> Result<()> {
        for name in DIRECTORIES {
            ensure_private_directory(&self.root.join(name))?;
        }
        // Without this a crash could keep a volume's directory but not volumes/ itself.
        file::sync_dir(&self.root)
            .map_err(cannot(|| "create the directories of the pool".to_owned()))
    }

    /// Removes what a crash left half-created or half-deleted, and nothing else. An orphan that cannot be removed does not
    /// disturb, so the pool is opened all the same.
    pub(super) fn remove_orphans(&self, pool: &PoolId) -> Result<()> {
        self.remove_orphans_in_staging(pool)?;
        remove_orphans(&self.trash(), pool)
    }

    /// Also for the directory that holds a managed pool's image.
    pub(super) fn remove_orphans_in_staging(&self, pool: &PoolId) -> Result<()> {
        ensure_private_directory(&self.staging())?;
        remove_orphans(&self.staging(), pool)
    }
}

fn remove_orphans(directory: &Path, pool: &PoolId) -> Result<()> {
    let listing = || format!("remove orphans from {}", directory.display());
    for entry in std::fs::read_dir(directory).map_err(cannot(listing))? {
        let path = entry.map_err(cannot(listing))?.path();
        if !is_orphan(&path, pool) {
            tracing::warn!(
                path = %path.display(),
                "ignoring an entry that this pool did not create"
            );
            continue;
        }
        match remove_orphan(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "removed an orphan"),
            Err(error) => {
                tracing::warn!(%error, "cannot remove an orphan; the next start tries again")
            }
        }
    }
    Ok(())
}

/// Does it have a name that Orlop gives in staging/ and trash/?
pub(super) fn is_orphan(path: &Path, pool: &PoolId) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let numbered = name.rsplit_once('.').filter(|(_, number)| number.parse::<u64>().is_ok());
    numbered.is_some_and(|(stem, _)| is_stem(stem, pool)) || is_draft_of_pool(name)
}

fn is_stem(stem: &str, pool: &PoolId) -> bool {
    stem == TEMPLATE
        || stem == SUBVOLUME_SNAPSHOT
        || stem.parse::<VolumeId>().is_ok_and(|id| id.pool() == pool)
        || stem.parse::<SnapshotId>().is_ok_and(|id| id.pool() == pool)
}

/// A draft of the pool header or the image of a new pool.
pub(super) fn is_draft_of_pool(name: &str) -> bool {
    let of = |kind: &str| name.strip_prefix(kind)?.strip_prefix('.');
    let is_draft = |nonce: &str| nonce.parse::<PoolId>().is_ok();
    [pool_header::NAME, managed::IMAGE].into_iter().filter_map(of).any(is_draft)
}

pub(super) fn remove_orphan(path: &Path) -> orlop_sys::Result<()> {
    // Files in a read-only subvolume snapshot cannot be unlinked; it is deleted as a whole.
    if btrfs::is_subvolume(path)? { btrfs::delete_subvolume(path) } else { file::remove_tree(path) }
}

/// Makes the pool's own directory. On btrfs it becomes a subvolume, so that all volumes in it can
/// be captured at one instant. An existing directory stays as it is.
pub(super) fn ensure_root(path: &Path) -> Result<()> {
    let making = || format!("make the directory {}", path.display());
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    ensure_private_directory(parent)?;
    let missing = !path.try_exists().map_err(cannot(making))?;
    if missing && file::backing_kind(parent).map_err(cannot(making))? == BackingKind::Btrfs {
        // This user may not be allowed to create subvolumes.
        if let Err(error) = make_private_subvolume(path) {
            tracing::warn!(
                %error,
                "the pool's directory is not a btrfs subvolume; group snapshots freeze their \
                 members"
            );
        }
    }
    ensure_private_directory(path)
}

/// A new subvolume is open to all users. So it is created under a temporary name, closed, and renamed. A crash may leave
/// the temporary name, which the next attempt uses again.
fn make_private_subvolume(path: &Path) -> orlop_sys::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    match btrfs::create_subvolume(&new) {
        // A crash leaves an empty subvolume. Anything else of that name is not Orlop's.
        Err(error) if error.is_taken() && is_empty_subvolume(&new)? => {}
        made => made?,
    }
    file::close_to_others(&new)?;
    match file::rename_new(&new, path)? {
        RenameOutcome::Renamed => Ok(()),
        RenameOutcome::TargetExists => btrfs::delete_subvolume(&new),
    }
}

fn is_empty_subvolume(path: &Path) -> orlop_sys::Result<bool> {
    let is_empty = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    Ok(is_empty && btrfs::is_subvolume(path)?)
}

/// Makes the directory and missing directories above it; only the owner may read them.
pub(super) fn ensure_private_directory(path: &Path) -> Result<()> {
    file::ensure_private_directory(path)
        .map_err(cannot(|| format!("make the directory {}", path.display())))
}

/// The directory of one volume or snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectDir(PathBuf);

impl ObjectDir {
    pub(super) const RECORD: &str = "record.json";
    pub(super) const DATA: &str = "data";

    pub(super) fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    pub(super) fn record(&self) -> PathBuf {
        self.0.join(Self::RECORD)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.0.join(Self::DATA)
    }

    /// `true` also if that cannot be determined.
    pub(super) fn may_exist(&self) -> bool {
        self.0.try_exists().unwrap_or(true)
    }

    /// Makes the directory; it must not exist yet.
    pub(super) fn create(&self) -> Result<()> {
        file::create_directory(&self.0)
            .map_err(cannot(|| format!("make the directory {}", self.0.display())))
    }

    /// Removes the directory with its contents, if it exists.
    pub(super) fn remove(&self) -> orlop_sys::Result<()> {
        // XFS frees an unlinked file later, in the background. A truncated file returns its space at once, for the next
        // volume. A file that something else uses, by a device or under another name, is not truncated (decision 0046).
        if let Err(error) = file::try_truncate_unused(&self.data()) {
            tracing::debug!(%error, "cannot truncate a file before removing it");
        }
        file::remove_tree(&self.0)
    }
}
