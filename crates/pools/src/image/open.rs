//! Opening a pool: finds or makes it, takes its lock, removes orphans, and reads its records.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlop_model::{Error, PoolId, Result, Topology};
use orlop_sys::thaw_helper::HelperCommand;

use super::ImagePool;
use super::PoolDirectory;
use super::attach::LoopDevices;
use super::capacity::{Floor, ImageCapacity};
use super::catalogue::ImageCatalogue;
use super::emergency_reserve::EmergencyReserve;
use super::last_owner::LastOwner;
use super::layout::Layout;
use super::making::make;
use super::managed::{Managed, image_in};
use super::pool_header::{Kind, PoolHeader};
use super::provisioner::{is_thick, remove_orphaned_members};
use super::{removed, rights};

/// What the operator says about a pool.
#[derive(Debug, Clone)]
pub struct ImagePoolConfig {
    /// Made if it is missing; a new pool only where it is empty.
    pub path: PathBuf,
    pub name: String,
    pub topology: Topology,
    pub floor: Floor,
    /// How much may be promised, in percent of what is there; 100 promises nothing twice.
    pub overcommit_percent: u32,
    /// Keep everything in an XFS image of this size, which is made if it is missing and grows
    /// when this grows.
    pub managed_size: Option<u64>,
    /// Make a pool where there is none. Off, a disk that is not mounted is waited for instead of
    /// becoming an empty pool on whatever is below.
    pub create: bool,
    /// Pools that were served by this name or at this path since this machine started: where none is
    /// there now, it is missing, and none is made in its place.
    pub served_before: Vec<ServedBefore>,
    /// The process that thaws a managed image, should this one be killed while it is frozen.
    pub thaw_helper: Option<HelperCommand>,
}

/// A pool that a daemon on this machine served before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedBefore {
    pub id: PoolId,
    /// Where it was, and where else it may be by now: it is not missing if it is there.
    pub paths: Vec<PathBuf>,
    /// The file of the run directory that remembers it.
    pub marker: PathBuf,
}

impl ImagePool {
    /// Makes the pool if there is none.
    pub fn open(config: ImagePoolConfig) -> Result<Self> {
        Self::open_if(config, |_| Ok(()))
    }

    /// As [`Self::open`], if the id is not refused: before anything in the pool is changed or attached.
    pub fn open_if(
        config: ImagePoolConfig,
        check: impl FnOnce(&PoolId) -> Result<()>,
    ) -> Result<Self> {
        let (mut header, is_new) = take_or_make(&config)?;
        check(header.id())?;
        header.enter(&config.path, &config.name)?;
        if let Some(volatility) = Self::volatility_at(&config.path) {
            tracing::warn!(pool = config.name, "the pool {volatility}");
        }
        let managed = match header.kind() {
            Kind::Plain => None,
            Kind::Managed => Some(open_managed(&config, &header, is_new)?),
        };
        let ImagePoolConfig { path, name, topology, floor, overcommit_percent, .. } = config;
        let directory = Arc::new(PoolDirectory::open(name, topology, header, managed)?);
        let reserve = Arc::new(EmergencyReserve::new(directory.name(), directory.root()));
        let catalogue = ImageCatalogue::read(Arc::clone(&directory), Arc::clone(&reserve))?;
        let catalogue = Arc::new(catalogue);
        warn_of_thick_volumes(&directory, &catalogue, &path);
        rights::check_devices(directory.layout())?;
        // Before the trash is swept: what a device still holds would not be freed.
        let devices = LoopDevices::recover(Arc::clone(&directory), Arc::clone(&catalogue))?;
        let layout = directory.layout();
        if !is_new {
            layout.remove_orphans(directory.id())?;
        }
        remove_orphaned_members(
            layout,
            catalogue.snapshot_index(),
            catalogue.group_snapshot_index(),
        );
        reserve.ensure();
        LastOwner::note(directory.name(), &directory.info().topology, &path);
        let capacity = ImageCapacity::open(
            Arc::clone(&directory),
            Arc::clone(&catalogue),
            floor,
            overcommit_percent,
        )?;
        Ok(Self::of_parts(directory, reserve, catalogue, capacity, devices))
    }
}

fn open_managed(config: &ImagePoolConfig, header: &PoolHeader, is_new: bool) -> Result<Managed> {
    if !is_new {
        Layout::new(&config.path).remove_orphans_in_staging(header.id())?;
    }
    let managed = Managed::open(&config.path, header.id(), config.managed_size)?;
    let written = managed.ensure_growth_written(config.thaw_helper.clone());
    written.inspect_err(|_| managed.close())?;
    Ok(managed)
}

fn warn_of_thick_volumes(directory: &PoolDirectory, catalogue: &ImageCatalogue, path: &Path) {
    if directory.managed().is_some_and(|managed| !managed.is_reserved())
        && !catalogue.volume_index().ids_where(is_thick).is_empty()
    {
        tracing::warn!(
            pool = directory.name(),
            image = %image_in(path).display(),
            "there are thick volumes in a sparse image: when the disk that holds the image is \
             full, they cannot be overwritten; reserve the image with fallocate and restart"
        );
    }
}

/// Also says whether the pool was made just now. Then nothing in it is swept: no earlier start of
/// this pool could have left anything.
fn take_or_make(config: &ImagePoolConfig) -> Result<(PoolHeader, bool)> {
    let (header, is_new) = match PoolHeader::try_take(&config.path)? {
        Some(header) => (header, false),
        None => {
            removed::check_nothing_left(config)?;
            check_not_missing(config)?;
            if !config.create {
                return Err(none_there(config));
            }
            (make(config)?, true)
        }
    };
    check_kind(config, header.kind())?;
    Ok((header, is_new))
}

pub(super) fn none_there(config: &ImagePoolConfig) -> Error {
    Error::unreachable(
        format!("open pool {}", config.name),
        format!(
            "there is no pool at {}; mount its filesystem, or allow a new one to be created and \
             restart",
            config.path.display()
        ),
    )
}

/// A disk that is not mounted, at a restart within one boot: what the run directory remembers of its
/// pool was written by a daemon that served it.
pub(super) fn check_not_missing(config: &ImagePoolConfig) -> Result<()> {
    for before in &config.served_before {
        let is_there = |path: &PathBuf| {
            let found = PoolHeader::read(path);
            found.is_ok_and(|found| found.is_some_and(|(id, _)| id == before.id))
        };
        if before.paths.iter().any(is_there) {
            continue;
        }
        return Err(Error::Unreachable {
            doing: format!("open pool {}", config.name),
            reason: format!(
                "there is no pool at {}, but pool {} was served under this name or at this path \
                 since this machine started; mount its filesystem, or, if a new pool is to be \
                 created, remove {} and restart",
                config.path.display(),
                before.id,
                before.marker.display()
            )
            .into(),
        });
    }
    Ok(())
}

pub(super) fn check_kind(config: &ImagePoolConfig, kind: Kind) -> Result<()> {
    if kind == Kind::Plain && config.managed_size.is_some() {
        return Err(Error::invalid(
            "ORLOP_POOL_IMAGE_SIZE",
            format!(
                "cannot open pool {} as an image: it is a plain directory that holds volumes as \
                 files; leave the size out, or use another directory",
                config.name
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
