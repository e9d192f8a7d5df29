//! The doctor's inspection of a pool: what in it contradicts its records?
//!
//! It takes the pool's lock if no daemon holds it, and keeps it as long as the findings live. Beside a daemon it only
//! looks, and passes over what a call that is under way may just be making. Nothing is changed before a finding's repair is
//! performed.

mod devices;
mod groups;
mod objects;
mod storage;

use std::sync::Arc;

use orlop_model::{
    Finding, LabelledDevice, NodeId, PoolId, Result, SnapshotRecord, VolumeId, VolumeRecord,
};

use super::LvmPool;
use super::catalogue::LvmCatalogue;
use super::commands::Lvm;
use super::open::{LvmPoolConfig, header, thin_pool, would_make};
use super::owner::OwnerTags;
use super::pool_lock::PoolLock;
use super::report::{GroupReport, Lv};
use crate::image::LastOwner;

/// What was found, and the pool's lock if it was free.
pub struct Inspection {
    pub id: PoolId,
    /// A daemon serves it now.
    pub in_use: bool,
    pub last_owner: Option<LastOwner>,
    /// The volumes whose records can be read.
    pub volumes: Vec<VolumeRecord>,
    pub snapshots: usize,
    pub devices: Vec<LabelledDevice>,
    pub findings: Vec<Finding>,
    names: Vec<VolumeId>,
    owner: OwnerTags,
    _lock: Option<PoolLock>,
}

impl Inspection {
    /// Also if its record cannot be read. An error says that it is not known.
    pub fn holds_volume(&self, id: &VolumeId) -> Result<bool> {
        Ok(self.names.binary_search(id).is_ok())
    }

    /// Says in the pool itself who serves it from now on.
    pub fn set_last_owner(&self, owner: &LastOwner) -> Result<()> {
        self.owner.set(owner)
    }
}

impl LvmPool {
    /// `None`: the thin pool holds no pool of Orlop, or a start would make it. `node` is the one that publications may name.
    pub fn inspect(config: &LvmPoolConfig, node: &NodeId) -> Result<Option<Inspection>> {
        let lvm = Arc::new(config.lvm()?);
        let report = lvm.report()?;
        if would_make(config, &lvm, &report)? {
            return Ok(None);
        }
        let thin_pool = thin_pool(config, &report)?;
        let Some(id) = header(config, thin_pool)? else { return Ok(None) };
        let lock = PoolLock::try_take_unused(thin_pool, &id)?;
        let catalogue = Arc::new(LvmCatalogue::load(&lvm, &id, &report, thin_pool));
        let mut pool = InspectedPool {
            lvm: Arc::clone(&lvm),
            catalogue,
            report: &report,
            thin_pool,
            id: id.clone(),
            in_use: lock.is_none(),
            devices: Vec::new(),
            findings: Vec::new(),
        };
        pool.inspect_devices()?;
        let (volumes, names) = pool.inspect_objects::<VolumeRecord>();
        let (snapshots, _) = pool.inspect_objects::<SnapshotRecord>();
        pool.inspect_strays();
        pool.inspect_groups(&snapshots, &volumes);
        pool.inspect_publications(&volumes, node);
        pool.inspect_storage(config);
        Ok(Some(Inspection {
            id,
            in_use: pool.in_use,
            last_owner: OwnerTags::load(&lvm, thin_pool).get(),
            volumes,
            snapshots: snapshots.len(),
            devices: pool.devices,
            findings: pool.findings,
            names,
            owner: OwnerTags::load(&lvm, thin_pool),
            _lock: lock,
        }))
    }

    /// The id of the pool, even if a daemon serves it. `None`: the thin pool holds none, or a start would make it.
    pub fn id_of(config: &LvmPoolConfig) -> Result<Option<PoolId>> {
        let lvm = Arc::new(config.lvm()?);
        let report = lvm.report()?;
        match would_make(config, &lvm, &report)? {
            true => Ok(None),
            false => header(config, thin_pool(config, &report)?),
        }
    }

    /// Free and total bytes for the data of the thin pool, even if a daemon serves it. `None`: it is not active.
    pub fn space_of(config: &LvmPoolConfig) -> Result<Option<(u64, u64)>> {
        let report = config.lvm()?.report()?;
        let thin_pool = thin_pool(config, &report)?;
        let size = thin_pool.size;
        Ok(thin_pool.data_used.map(|used| (size.saturating_sub(used.of(size)), size)))
    }
}

/// The pool that is inspected, and what was found so far.
struct InspectedPool<'a> {
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
    report: &'a GroupReport,
    thin_pool: &'a Lv,
    id: PoolId,
    in_use: bool,
    devices: Vec<LabelledDevice>,
    findings: Vec<Finding>,
}

impl InspectedPool<'_> {
    fn found(&mut self, finding: Finding) {
        self.findings.push(finding);
    }
}

#[cfg(test)]
mod tests;
