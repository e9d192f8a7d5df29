//! Opening a pool: is the thin pool there, and is it one of Orlop's?

use std::sync::Arc;
use std::time::Duration;

use orlop_model::{Error, PoolId, Reason, Result, SnapshotId, VolumeId};
use orlop_sys::rand::random_bytes;

use super::capacity::{Limits, LvmCapacity};
use super::catalogue::LvmCatalogue;
use super::commands::Lvm;
use super::devices::{LinearDevices, resume_suspended};
use super::layout::{GroupName, OwnTag, own_tag, pool_tag};
use super::provisioner::LvmProvisioner;
use super::report::{GroupReport, Lv, LvKind};

/// How long a report may take. Another command of LVM may hold the lock for seconds.
const REPORT_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(super) struct LvmPoolConfig {
    /// The operator's name for the pool.
    pub(super) name: String,
    pub(super) group: String,
    pub(super) thin_pool: String,
    /// May a thin pool that is none of Orlop's become one?
    pub(super) create: bool,
    pub(super) limits: Limits,
    /// lvm.conf's, which come before the file; empty but for tests.
    pub(super) settings: String,
}

/// What the parts of a pool are built on.
#[derive(Debug)]
pub(super) struct OpenedGroup {
    pub(super) id: PoolId,
    pub(super) lvm: Arc<Lvm>,
    pub(super) catalogue: Arc<LvmCatalogue>,
    pub(super) capacity: Arc<LvmCapacity>,
    pub(super) devices: Arc<LinearDevices>,
    pub(super) provisioner: LvmProvisioner,
}

impl OpenedGroup {
    /// What an earlier daemon has not finished is removed.
    pub(super) fn open(config: &LvmPoolConfig) -> Result<Self> {
        let group: GroupName = config.group.parse()?;
        let lvm = Arc::new(Lvm::new(group, &config.settings, REPORT_LIMIT));
        let report = lvm.report()?;
        let thin_pool = thin_pool(config, &report)?;
        let id = read_or_write_header(config, &lvm, &report, thin_pool)?;
        let catalogue = Arc::new(LvmCatalogue::load(&lvm, &id, &report, thin_pool));
        // First: writers wait for it.
        resume_suspended(&id)?;
        catalogue.remove_unfinished();
        let name = &thin_pool.name;
        let capacity = LvmCapacity::new(&lvm, &catalogue, &config.name, name, config.limits);
        let devices = LinearDevices::new(&lvm, &catalogue);
        let provisioner = LvmProvisioner::new(&lvm, &catalogue, &capacity, &devices, name);
        Ok(Self { id, lvm, catalogue, capacity, devices, provisioner })
    }
}

fn opening(config: &LvmPoolConfig) -> String {
    format!("open pool {}", config.name)
}

fn thin_pool<'a>(config: &LvmPoolConfig, report: &'a GroupReport) -> Result<&'a Lv> {
    let LvmPoolConfig { group, thin_pool, .. } = config;
    let lv = report.lv(thin_pool).filter(|lv| lv.kind() == LvKind::ThinPool);
    let lv = lv.ok_or_else(|| {
        let reason = format!(
            "the volume group {group} has no thin pool {thin_pool}; correct the configuration, or make it: `lvcreate \
             --type thin-pool --size SIZE --name {thin_pool} {group}`"
        );
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
    lvm: &Lvm,
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

fn header(config: &LvmPoolConfig, thin_pool: &Lv) -> Result<Option<PoolId>> {
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
