//! The doctor's inspection of a pool: what in it contradicts its records?
//!
//! It takes the pool's lock if no process holds it, and keeps it as long as the findings live. Beside a
//! daemon it only looks, and passes over what a call that is under way may just be making.
//! Nothing is changed before a finding's repair is performed.

mod devices;
mod groups;
mod objects;
mod space;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlop_model::{
    Error, Finding, LabelledDevice, NodeId, PoolId, Result, SnapshotRecord, VolumeId, VolumeRecord,
};
use orlop_sys::{file, mounts};

use super::ImagePool;
use super::attach::all_attached;
use super::failure::cannot;
use super::last_owner::LastOwner;
use super::layout::{Layout, is_orphan, remove_orphan};
use super::making::holds_volumes;
use super::managed::{self, Managed};
use super::open::ImagePoolConfig;
use super::pool_header::{self, Kind, PoolHeader};
use super::quarantine;

/// What was found, and the pool's lock if it was free.
pub struct Inspection {
    pub id: PoolId,
    /// A daemon serves it now.
    pub in_use: bool,
    pub last_owner: Option<LastOwner>,
    /// The volumes whose records can be read.
    pub volumes: Vec<VolumeRecord>,
    pub snapshots: usize,
    /// How many objects earlier repairs have quarantined.
    pub quarantined: usize,
    pub devices: Vec<LabelledDevice>,
    pub findings: Vec<Finding>,
    path: PathBuf,
    root: PathBuf,
    _lock: Option<PoolHeader>,
    /// Mounted for this look.
    opened: Option<Managed>,
}

impl Drop for Inspection {
    fn drop(&mut self) {
        if let Some(managed) = &self.opened {
            managed.close();
        }
    }
}

impl Inspection {
    /// Also if its record cannot be read. An error says that it is not known.
    pub fn holds_volume(&self, id: &VolumeId) -> Result<bool> {
        let home = Layout::new(&self.root).volumes().join(id.to_string());
        match fs::symlink_metadata(&home) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(cannot(|| format!("inspect {}", home.display()))(error)),
        }
    }

    /// Says in the pool itself who serves it from now on.
    pub fn set_last_owner(&self, owner: &LastOwner) -> Result<()> {
        owner.write(&self.path)
    }
}

impl ImagePool {
    /// `None`: there is no pool. `node` is the one that publications may name.
    pub fn inspect(config: &ImagePoolConfig, node: &NodeId) -> Result<Option<Inspection>> {
        let Some((id, kind)) = PoolHeader::read(&config.path)? else {
            return Ok(None);
        };
        let lock = PoolHeader::try_take_unused(&config.path)?;
        let (root, opened) = reach(&config.path, &id, kind, lock.is_some())?;
        let mut ground = InspectedPool::at(&root, &id, lock.is_none())?;
        let volumes: Vec<VolumeRecord> = ground.inspect_objects(&ground.layout.volumes())?;
        let snapshots: Vec<SnapshotRecord> = ground.inspect_objects(&ground.layout.snapshots())?;
        ground.inspect_groups(&snapshots)?;
        ground.inspect_publications(&volumes, node);
        ground.inspect_orphans(&config.path)?;
        if kind == Kind::Managed {
            ground.findings.extend(managed::finding_of_image(&config.path, &id)?);
            ground.findings.extend(devices::foreign_on_image(&config.path, &id)?);
        }
        ground.inspect_space(config)?;
        Ok(Some(Inspection {
            id,
            in_use: lock.is_none(),
            last_owner: LastOwner::read(&config.path),
            quarantined: quarantine::count(&ground.layout),
            devices: ground.devices,
            findings: ground.findings,
            snapshots: snapshots.len(),
            volumes,
            path: config.path.clone(),
            root,
            _lock: lock,
            opened,
        }))
    }

    /// The id of the pool in a directory, even if a daemon serves it. `None`: there is no pool.
    pub fn id_at(path: &Path) -> Result<Option<PoolId>> {
        Ok(PoolHeader::read(path)?.map(|(id, _)| id))
    }

    /// Free and total space of the filesystem with the volumes, even if a daemon serves the pool. `None`: the image of a
    /// managed pool is not mounted.
    pub fn space_at(path: &Path) -> Result<Option<(u64, u64)>> {
        let root = match PoolHeader::read(path)? {
            Some((_, Kind::Managed)) => {
                let root = managed::mount_point_in(path);
                let mounted = mounts::mount_at(&root);
                match mounted.map_err(cannot(|| format!("inspect {}", root.display())))? {
                    Some(_) => root,
                    None => return Ok(None),
                }
            }
            Some((_, Kind::Plain)) => path.to_owned(),
            None => return Ok(None),
        };
        let space = file::space(&root)
            .map_err(cannot(|| format!("read the space of {}", root.display())))?;
        Ok(Some((space.free, space.total)))
    }

    /// What is wrong with the image of a pool that [`Self::inspect`] cannot open.
    pub fn finding_of_image(path: &Path) -> Result<Option<Finding>> {
        match PoolHeader::read(path)? {
            Some((id, Kind::Managed)) => managed::finding_of_image(path, &id),
            Some((_, Kind::Plain)) | None => Ok(None),
        }
    }

    /// Devices that show volumes of a pool with this id, but not of the one at `path`.
    pub fn copies_in_use(id: &PoolId, path: &Path) -> Result<Vec<PathBuf>> {
        devices::of_copies(id, path)
    }

    /// Does the directory hold volumes, whether or not a mark says whose?
    pub fn has_volumes_at(path: &Path) -> bool {
        holds_volumes(path)
    }
}

/// The directory with the volumes in it. An image that is not mounted is mounted for the inspection.
fn reach(
    path: &Path,
    id: &PoolId,
    kind: Kind,
    is_ours: bool,
) -> Result<(PathBuf, Option<Managed>)> {
    match kind {
        Kind::Plain => return Ok((path.to_owned(), None)),
        Kind::Managed => {}
    }
    let root = managed::mount_point_in(path);
    let looking = || format!("find the pool's image at {}", root.display());
    let mounted = match mounts::mount_at(&root) {
        Err(error) if error.is_not_found() => false,
        there => there.map_err(cannot(looking))?.is_some(),
    };
    match (mounted, is_ours) {
        (true, _) => Ok((root, None)),
        (false, true) => {
            let managed = Managed::open(path, id, None)?;
            Ok((root, Some(managed)))
        }
        (false, false) => Err(Error::failed(
            looking(),
            "the daemon that uses the pool has it mounted where this process cannot see it",
        )),
    }
}

/// The pool that is inspected, and what was found so far.
struct InspectedPool {
    layout: Arc<Layout>,
    id: PoolId,
    in_use: bool,
    devices: Vec<LabelledDevice>,
    findings: Vec<Finding>,
}

impl InspectedPool {
    fn at(root: &Path, id: &PoolId, in_use: bool) -> Result<Self> {
        let layout = Arc::new(Layout::new(root));
        let filesystem =
            fs::metadata(root).map_err(cannot(|| format!("inspect {}", root.display())))?.dev();
        let attached = all_attached(id, root)?;
        let devices = devices::labelled(&layout, id, filesystem, &attached)?;
        let findings = devices::foreign(&layout, &attached, in_use)?;
        Ok(Self { layout, id: id.clone(), in_use, devices, findings })
    }

    fn found(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Moves `directory` out of the way, on `--repair`, unless there is a pool in it: its volumes may
    /// be in use, and its next start would make an empty one in its place.
    fn found_astray(
        &mut self,
        code: &'static str,
        subject: String,
        problem: String,
        directory: PathBuf,
    ) {
        if let Some(header) = pool_header_in(&directory) {
            return self.found(Finding::by_hand(
                "pool-inside",
                subject,
                format!("{problem}, but it is or contains another pool, with the pool header {header}"),
                "stop the daemon that serves that pool, and move it to a directory outside this pool",
            ));
        }
        let layout = Arc::clone(&self.layout);
        let act = format!("move it to {}", layout.quarantine().display());
        let perform = move || quarantine::quarantine(&layout, &directory);
        self.found(Finding::repairable(code, subject, problem, act, perform));
    }

    /// While a daemon uses the pool, entries of staging/ and trash/ are no sign of a fault. Entries whose names
    /// this pool does not make are left alone.
    fn inspect_orphans(&mut self, around: &Path) -> Result<()> {
        if self.in_use {
            return Ok(());
        }
        let mut directories = vec![self.layout.staging(), self.layout.trash()];
        if around != self.layout.root() {
            directories.push(Layout::new(around).staging());
        }
        for directory in directories {
            let mut orphans = entries(&directory)?;
            orphans.retain(|path| is_orphan(path, &self.id));
            for path in orphans {
                let removing = path.clone();
                self.found(Finding::repairable(
                    "leftover",
                    path.display().to_string(),
                    "an interrupted call left it half-made or half-deleted",
                    "remove it, as the next start would",
                    move || {
                        remove_orphan(&removing)
                            .map_err(cannot(|| format!("remove {}", removing.display())))
                    },
                ));
            }
        }
        Ok(())
    }
}

/// The first pool header at or below a directory, not beyond links.
fn pool_header_in(directory: &Path) -> Option<String> {
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        // What is no directory, or is gone, holds nothing.
        let Ok(found) = fs::read_dir(&directory) else { continue };
        for entry in found.flatten() {
            if entry.file_name() == pool_header::NAME {
                return Some(entry.path().display().to_string());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(entry.path());
            }
        }
    }
    None
}

/// In the order of names. A directory that is not there holds nothing.
fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let listing = || format!("list {}", directory.display());
    let found = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(cannot(listing))?,
    };
    let mut paths = Vec::new();
    for entry in found {
        paths.push(entry.map_err(cannot(listing))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
