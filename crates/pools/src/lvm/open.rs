//! Opening a pool: is the thin pool there, is it one of Orlop's, and does no other daemon use it?

use std::sync::Arc;
use std::time::Duration;

use orlop_model::{Error, PoolId, PoolInfo, Reason, Result, SnapshotId, Topology, VolumeId};
use orlop_sys::rand::random_bytes;
use orlop_sys::thaw_helper::{HelperCommand, ThawHelper};

use super::LvmPool;
use super::capacity::{Limits, LvmCapacity};
use super::catalogue::LvmCatalogue;
use super::changes::ThinMaps;
use super::commands::Lvm;
use super::devices::{LinearDevices, ensure_nodes, refresh_suspended, resume_suspended};
use super::extension::Extension;
use super::health::LvmHealth;
use super::layout::{GroupName, OwnTag, own_tag, pool_tag};
use super::making::{Making, NewThinPool, is_begun};
use super::owner::OwnerTags;
use super::pool_lock::{PoolLock, commands_lock, making_lock, reader_marker, wait_for_commands};
use super::provisioner::LvmProvisioner;
use super::report::{GroupReport, Lv, LvKind};
use super::watch::PoolWatch;
use crate::image::Floor;

/// How long a report may take. Another command of LVM may hold the lock for seconds.
pub(super) const REPORT_LIMIT: Duration = Duration::from_secs(60);

/// What the operator says about a pool.
#[derive(Debug, Clone)]
pub struct LvmPoolConfig {
    /// The operator's name for the pool.
    pub name: String,
    /// The volume group.
    pub group: String,
    /// The thin pool in it.
    pub thin_pool: String,
    pub topology: Topology,
    pub floor: Floor,
    /// How much may be promised, in percent of what is there; 100 promises nothing twice.
    pub overcommit_percent: u32,
    /// May a thin pool that is none of Orlop's become one, and one be made where there is none?
    pub create: bool,
    /// What is made then.
    pub new_thin_pool: NewThinPool,
    /// `None`: the thin pool stays as large as it is.
    pub extension: Option<Extension>,
    /// The process that resumes what is suspended for a snapshot, should this one be killed.
    pub thaw_helper: Option<HelperCommand>,
    /// The longest that a group snapshot may keep a volume suspended.
    pub suspend_limit: Duration,
    /// lvm.conf's, which come before the file; empty but for tests.
    pub lvm_settings: String,
}

impl LvmPoolConfig {
    /// Unless the operator chooses another one.
    pub const SUSPEND_LIMIT: Duration = Duration::from_secs(60);

    pub(super) fn lvm(&self) -> Result<Lvm> {
        let group: GroupName = self.group.parse()?;
        Ok(Lvm::new(group, &self.lvm_settings, REPORT_LIMIT))
    }
}

impl LvmPool {
    pub fn open(config: LvmPoolConfig) -> Result<Self> {
        Self::open_if(config, |_| Ok(()))
    }

    /// Would [`Self::open`] refuse this before it asks LVM?
    pub fn check(config: &LvmPoolConfig) -> Result<()> {
        config.group.parse::<GroupName>().map(drop)
    }

    /// As [`Self::open`], if the id is not refused: before anything in the pool is changed or attached.
    pub fn open_if(
        config: LvmPoolConfig,
        check: impl FnOnce(&PoolId) -> Result<()>,
    ) -> Result<Self> {
        let lvm = Arc::new(config.lvm()?);
        let mut report = lvm.report()?;
        if is_to_be_made(&config, &report) {
            // A command of an earlier daemon may be about to make what the report does not show.
            let making = making_lock(&report.group, &config.thin_pool);
            wait_for_commands(&config.name, &making)?;
            lvm.lock_commands(&making);
            report = lvm.report()?;
        }
        if ensure_made(&config, &lvm, &report)? {
            report = lvm.report()?;
        }
        let thin_pool = thin_pool(&config, &report)?;
        let lock = PoolLock::take(thin_pool)?;
        let id = read_or_write_header(&config, &lvm, &report, thin_pool)?;
        check(&id)?;
        lock.add(&id)?;
        // First: writers wait for it.
        resume_suspended(&id)?;
        ensure_nodes(lvm.group(), &id)?;
        wait_for_commands(&config.name, &commands_lock(&id))?;
        // Again: one of them may have suspended it only now.
        resume_suspended(&id)?;
        lvm.lock_commands(&commands_lock(&id));
        refresh_suspended(&lvm, &report, &config.thin_pool)?;
        // In no report of before is what commands of the earlier daemon did.
        let report = ensure_active(&config, &lvm)?;
        Self::of_parts(
            &lvm,
            &report,
            PoolInfo { id, name: config.name.clone(), topology: config.topology.clone() },
            lock,
            config,
        )
    }

    /// Each component is built on those before it. What an earlier daemon has not finished is removed.
    fn of_parts(
        lvm: &Arc<Lvm>,
        report: &GroupReport,
        info: PoolInfo,
        lock: PoolLock,
        config: LvmPoolConfig,
    ) -> Result<Self> {
        let thin_pool = thin_pool(&config, report)?;
        let catalogue = &Arc::new(LvmCatalogue::load(lvm, &info.id, report, thin_pool));
        catalogue.log_unusable();
        catalogue.remove_unfinished();
        let owner = OwnerTags::load(lvm, thin_pool);
        owner.note(&info.name, &info.topology);
        let limits = Limits {
            floor: config.floor,
            overcommit_percent: config.overcommit_percent,
            extension: config.extension,
        };
        let name = &thin_pool.name;
        let capacity = &LvmCapacity::new(lvm, catalogue, &info.name, name, limits);
        capacity.warn_of_when_full();
        let suspending = (config.thaw_helper.map(ThawHelper::new), config.suspend_limit);
        let devices = &LinearDevices::new(lvm, catalogue, &info.id, &report.group, suspending);
        let watch = PoolWatch::start(&info.name, capacity)?;
        Ok(Self {
            provisioner: LvmProvisioner::new(lvm, catalogue, capacity, devices, name),
            changed_blocks: ThinMaps::open(lvm, catalogue, devices, name, reader_marker(&info.id)),
            health: LvmHealth::new(lvm, catalogue, capacity, &info.name, name),
            info,
            #[cfg(test)]
            lvm: Arc::clone(lvm),
            catalogue: Arc::clone(catalogue),
            #[cfg(test)]
            capacity: Arc::clone(capacity),
            devices: Arc::clone(devices),
            owner,
            watch,
            lock,
        })
    }
}

/// After a reboot it may not be, and its usage is not known then. Its volumes are activated when they are attached. Returns
/// what LVM reports now.
fn ensure_active(config: &LvmPoolConfig, lvm: &Lvm) -> Result<Arc<GroupReport>> {
    let report = lvm.report()?;
    let thin_pool = thin_pool(config, &report)?;
    if thin_pool.is_active() {
        return Ok(report);
    }
    let lv = lvm.group().lv(&thin_pool.name);
    let done = lvm.change(|| opening(config), "lvchange", &["--activate", "y", &lv]);
    // The pool comes later: once it is repaired, or its disks are there.
    done.map_err(|error| {
        let is_lasting = matches!(error, Error::Damaged { .. } | Error::Failed { .. });
        match is_lasting {
            true => Error::unreachable(opening(config), Reason::of(error)),
            false => error,
        }
    })?;
    lvm.report()
}

/// The thin pool, or its pool header.
fn is_to_be_made(config: &LvmPoolConfig, report: &GroupReport) -> bool {
    let is_header = |tag: &String| matches!(own_tag(tag), Some(Ok(OwnTag::Pool(_))));
    let is_made = report.lv(&config.thin_pool).is_some_and(|lv| lv.tags.iter().any(is_header));
    config.create && !is_made
}

fn ensure_made(config: &LvmPoolConfig, lvm: &Arc<Lvm>, report: &GroupReport) -> Result<bool> {
    let making = Making {
        pool: &config.name,
        thin_pool: &config.thin_pool,
        new: &config.new_thin_pool,
        extension: config.extension.as_ref(),
        lvm,
    };
    if !config.create {
        return Ok(false);
    }
    would_make(config, lvm, report)?;
    making.ensure_made(report)
}

/// Is there nothing of the thin pool's name yet, or what an interrupted start has made of it, and may it be made?
pub(super) fn would_make(
    config: &LvmPoolConfig,
    lvm: &Arc<Lvm>,
    report: &GroupReport,
) -> Result<bool> {
    let is_wanted = config.create && report.lv(&config.thin_pool).is_none_or(is_begun);
    if is_wanted {
        check_not_renamed(config, lvm, report)?;
    }
    Ok(is_wanted)
}

/// A thin pool of another name that was served as this pool: an empty one beside it would be in its place.
fn check_not_renamed(config: &LvmPoolConfig, lvm: &Arc<Lvm>, report: &GroupReport) -> Result<()> {
    let was_this = |lv: &&Lv| {
        let owner = || OwnerTags::load(lvm, lv).get();
        lv.kind() == LvKind::ThinPool && owner().is_some_and(|owner| owner.name == config.name)
    };
    match report.volumes.iter().find(was_this) {
        None => Ok(()),
        Some(lv) => Err(Error::failed(
            opening(config),
            format!(
                "the volume group {group} has no pool of Orlop in a thin pool {configured}, and its thin pool {found} was \
                 served as this pool; correct the configuration, or rename it by `lvrename {group} {found} {configured}`",
                group = config.group,
                configured = config.thin_pool,
                found = lv.name
            ),
        )),
    }
}

fn opening(config: &LvmPoolConfig) -> String {
    format!("open pool {}", config.name)
}

pub(super) fn thin_pool<'a>(config: &LvmPoolConfig, report: &'a GroupReport) -> Result<&'a Lv> {
    let LvmPoolConfig { group, thin_pool, .. } = config;
    let lv = report.lv(thin_pool).filter(|lv| lv.kind() == LvKind::ThinPool);
    let lv = lv.ok_or_else(|| {
        let reason = match report.lv(thin_pool) {
            None => format!(
                "the volume group {group} has no thin pool {thin_pool}; correct the configuration, or make it: \
                 `lvcreate --type thin-pool --size SIZE --name {thin_pool} {group}`"
            ),
            Some(_) => format!(
                "{group}/{thin_pool} is no thin pool; correct the configuration, or rename it. If the machine went down \
                 while Orlop made the thin pool, it holds nothing: `lvs --all {group}` shows its parts, to be removed \
                 with `lvremove`"
            ),
        };
        Error::failed(opening(config), reason)
    })?;
    let zeroes = |name: &str| {
        report.segments.iter().any(|segment| segment.lv == name && segment.zeroes_chunks())
    };
    match zeroes(thin_pool) {
        true => Ok(lv),
        false => Err(Error::failed(
            opening(config),
            format!(
                "the thin pool {thin_pool} does not zero the chunks that it gives to volumes, so a volume could show \
                 what another has written; `lvchange --zero y {group}/{thin_pool}` turns it on"
            ),
        )),
    }
}

fn read_or_write_header(
    config: &LvmPoolConfig,
    lvm: &Arc<Lvm>,
    report: &GroupReport,
    thin_pool: &Lv,
) -> Result<PoolId> {
    if let Some(id) = header(config, thin_pool)? {
        return Ok(id);
    }
    if let Some(lost) = id_in_use(report, thin_pool) {
        let lv = lvm.group().lv(&thin_pool.name);
        let reason = format!(
            "its pool header is lost, and volumes or snapshots of pool {lost} are in it; restore it by `lvchange \
             --addtag {} {lv}`",
            pool_tag(&lost)
        );
        return Err(Error::damaged(format!("the thin pool {lv}"), reason));
    }
    let making = || format!("make pool {}", config.name);
    if !config.create {
        return Err(Error::failed(
            making(),
            format!(
                "the thin pool {} holds no pool of Orlop, and the configuration does not allow a new one",
                config.thin_pool
            ),
        ));
    }
    check_not_renamed(config, lvm, report)?;
    let random = random_bytes().map_err(|error| Error::failed(making(), Reason::of(error)))?;
    let id = PoolId::from_random(random);
    tracing::warn!(
        group = config.group,
        thin_pool = config.thin_pool,
        "this thin pool is new to Orlop; writing the pool header"
    );
    let arguments = ["--addtag", &pool_tag(&id), &lvm.group().lv(&thin_pool.name)];
    lvm.change(making, "lvchange", &arguments)?;
    Ok(id)
}

pub(super) fn header(config: &LvmPoolConfig, thin_pool: &Lv) -> Result<Option<PoolId>> {
    let damaged =
        |reason: String| Error::damaged(format!("the header of pool {}", config.name), reason);
    let mut found = None;
    for tag in &thin_pool.tags {
        let Some(OwnTag::Pool(id)) = own_tag(tag).transpose().map_err(damaged)? else { continue };
        let id = id.parse().map_err(|_| damaged(format!("its tag {tag} holds no id")))?;
        if found.replace(id).is_some() {
            return Err(damaged("the thin pool has two; remove the wrong tag".to_owned()));
        }
    }
    Ok(found)
}

/// The pool id in the name of anything of ours in the thin pool.
fn id_in_use(report: &GroupReport, thin_pool: &Lv) -> Option<PoolId> {
    let is_ours = |lv: &&Lv| {
        lv.thin_pool == thin_pool.name && lv.tags.iter().any(|tag| own_tag(tag).is_some())
    };
    let id_of = |lv: &Lv| {
        let of_volume = || Some(lv.name.parse::<VolumeId>().ok()?.pool().clone());
        let of_snapshot = || Some(lv.name.parse::<SnapshotId>().ok()?.pool().clone());
        of_volume().or_else(of_snapshot)
    };
    report.volumes.iter().filter(is_ours).find_map(id_of)
}

#[cfg(test)]
mod tests;
