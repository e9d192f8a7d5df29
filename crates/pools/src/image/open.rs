//! Opening a pool: find or make it, take its lock, sweep, and read what it holds.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use orlop_model::{Error, PoolId, PoolInfo, Result, Topology};
use orlop_sys::btrfs;
use orlop_sys::file::{self, BackingKind};
use orlop_sys::filesystem::keeps_order;
use orlop_sys::guard::GuardCommand;

use super::attach::Attachments;
use super::ballast::Ballast;
use super::failure::Doing;
use super::group_delete::sweep_orphans;
use super::layout::Layout;
use super::ledger::Ledger;
use super::making::make;
use super::managed::{Managed, image_in};
use super::marker::{Kind, Marker};
use super::moment::ThickDrafts;
use super::register::Register;
use super::rights;
use super::room::Floor;
use super::served_by::ServedBy;
use super::shelf::Shelf;
use super::store::Store;
use super::survey::Surveyor;
use super::templates::Templates;
use super::volume_draft::is_thick;
use crate::shortage::Shortage;

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
    /// The process that thaws a managed image, should this one be killed while it is frozen.
    pub thaw_guard: Option<GuardCommand>,
}

impl Store {
    pub(super) fn open(
        config: ImagePoolConfig,
        check: impl FnOnce(&PoolId) -> Result<()>,
    ) -> Result<Arc<Self>> {
        let (mut marker, is_new) = take_or_make(&config)?;
        check(marker.id())?;
        marker.enter(&config.path, &config.name)?;
        let managed = match marker.kind() {
            Kind::Plain => None,
            Kind::Managed => {
                if !is_new {
                    Layout::new(&config.path).sweep_staging(marker.id())?;
                }
                let managed = Managed::open(&config.path, marker.id(), config.managed_size)?;
                managed.ensure_growth_written(config.thaw_guard.clone())?;
                Some(managed)
            }
        };
        let layout = Layout::new(managed.as_ref().map_or(&config.path, Managed::root));
        layout.ensure()?;
        let opening = || format!("open pool {}", config.name);
        let filesystem = fs::metadata(layout.root()).doing(opening)?.dev();
        let backing = file::backing_kind(layout.root()).doing(opening)?;
        let keeps_order = keeps_order(layout.root()).doing(opening)?;
        let shares_extents = shares_extents(&layout.staging(), backing).doing(opening)?;
        if !shares_extents {
            tracing::warn!(
                pool = config.name,
                filesystem = ?backing,
                "this filesystem cannot share extents: snapshots and clones copy all data and \
                 hold writers for as long; use XFS, btrfs or a managed pool"
            );
        }

        let holds_moments = shares_extents && btrfs::is_subvolume(layout.root()).doing(opening)?;

        let volumes = Shelf::read(layout.volumes(), marker.id())?;
        if managed.as_ref().is_some_and(|managed| !managed.is_reserved())
            && !volumes.ids_where(is_thick).is_empty()
        {
            tracing::warn!(
                pool = config.name,
                image = %image_in(&config.path).display(),
                "there are thick volumes in a sparse image: on a full disk around it they cannot be \
                 overwritten; reserve the image with fallocate and restart"
            );
        }
        let snapshots = Shelf::read(layout.snapshots(), marker.id())?;
        let group_snapshots = Register::read(layout.group_snapshots(), marker.id())?;
        let volume_groups = Register::read(layout.volume_groups(), marker.id())?;
        rights::check_devices(&layout)?;
        // Before the trash is swept: what a device still holds would not be freed.
        let attachments = Attachments::recover(marker.id(), &layout, &volumes, filesystem)?;
        if !is_new {
            layout.sweep(marker.id())?;
        }
        sweep_orphans(&layout, &snapshots, &group_snapshots);
        let ballast = Ballast::new(layout.root());
        ballast.ensure();
        ServedBy::note(&config.name, &config.topology, &config.path);
        let promised = volumes.charges() + snapshots.charges();
        let used = volumes.own_bytes() + snapshots.own_bytes();
        let ledger = Ledger::new(config.floor, config.overcommit_percent, promised, used);
        let info =
            PoolInfo { id: marker.id().clone(), name: config.name, topology: config.topology };
        let store = Arc::new(Self {
            info,
            ledger: Mutex::new(ledger),
            surveyor: Surveyor::default(),
            floor: config.floor,
            shortage: Shortage::default(),
            layout,
            marker,
            managed,
            filesystem,
            backing,
            keeps_order,
            shares_extents,
            holds_moments,
            thick_drafts: ThickDrafts::default(),
            volumes,
            snapshots,
            group_snapshots,
            volume_groups,
            attachments,
            ballast,
            templates: Templates::default(),
        });
        store.begin_survey()?;
        Ok(store)
    }
}

/// A pool that is full or read-only must open all the same: that is when someone needs to look at
/// it, and on a full one to delete.
fn shares_extents(directory: &Path, backing: BackingKind) -> orlop_sys::Result<bool> {
    match file::can_share_extents(directory) {
        Err(error) if error.is_no_space() || error.is_read_only() => {
            let assumed = match backing {
                BackingKind::Xfs | BackingKind::Btrfs => true,
                BackingKind::Ext4
                | BackingKind::Tmpfs
                | BackingKind::Overlay
                | BackingKind::Other => false,
            };
            tracing::warn!(%error, assumed, "cannot test whether the filesystem shares extents");
            Ok(assumed)
        }
        tried => tried,
    }
}

/// Also says whether the pool was made just now. Then nothing in it is swept: no earlier start of
/// this pool could have left anything.
fn take_or_make(config: &ImagePoolConfig) -> Result<(Marker, bool)> {
    let (marker, is_new) = match Marker::try_take(&config.path)? {
        Some(marker) => (marker, false),
        None if config.create => (make(config)?, true),
        None => return Err(none_there(config)),
    };
    check_kind(config, marker.kind())?;
    Ok((marker, is_new))
}

pub(super) fn none_there(config: &ImagePoolConfig) -> Error {
    Error::Unreachable {
        doing: format!("open pool {}", config.name),
        reason: format!(
            "there is none at {}; mount its filesystem, or allow a new one to be created and \
             restart",
            config.path.display()
        ),
    }
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
