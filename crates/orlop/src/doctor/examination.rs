//! The look itself: at every pool, then at the machine.

use std::path::Path;
use std::time::Duration;

use orlop_host::{MachineScan, VolumeExistence};
use orlop_model::{Error, Finding, NodeId, PoolId, Result, VolumeId};
use orlop_pools::image::{ImagePool, ImagePoolConfig, Inspection};
use orlop_pools::rbd::RbdPool;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::config::{Config, PoolConfig, Sockets};

/// After which a call's traces are gone, unless something is wrong.
const A_MOMENT: Duration = Duration::from_secs(1);

/// The pools and the run directory stay locked as long as this lives.
#[derive(Default)]
pub(crate) struct Examination {
    pub(crate) pools: Vec<PoolSeen>,
    pub(crate) findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub(crate) unseen: Vec<String>,
    /// Of configured pools of which not even the id could be found out.
    without_id: usize,
    /// Of the Ceph pools that were looked at.
    rbd_ids: Vec<PoolId>,
    machine: Option<MachineScan>,
}

pub(crate) struct PoolSeen {
    pub(crate) name: String,
    pub(crate) at: String,
    /// Of image pools alone.
    pub(crate) inspection: Option<Inspection>,
}

impl Examination {
    pub(crate) fn of(config: &Config, sockets: Option<&Sockets>) -> Self {
        let mut examination = Self::default();
        for pool in &config.pools {
            match pool {
                PoolConfig::Image(pool) => examination.see_image_pool(pool, &config.node_id),
                PoolConfig::Rbd(pool) => {
                    match RbdPool::inspect(pool) {
                        Ok((id, findings)) => {
                            examination.rbd_ids.push(id);
                            examination.findings.extend(findings);
                        }
                        Err(error) => {
                            examination.without_id += 1;
                            examination.unseen.push(format!("pool {}: {error}", pool.name));
                        }
                    }
                    let (name, at) = (pool.name.clone(), format!("the Ceph pool {}", pool.pool));
                    examination.pools.push(PoolSeen { name, at, inspection: None });
                }
            }
        }
        examination.compare_ids();
        if let Err(error) = examination.see_machine(config, sockets) {
            examination.unseen.push(format!("this machine: {error}"));
        }
        examination
    }

    pub(crate) fn inspections(&self) -> impl Iterator<Item = &Inspection> {
        self.pools.iter().filter_map(|pool| pool.inspection.as_ref())
    }

    fn see_image_pool(&mut self, config: &ImagePoolConfig, node: &NodeId) {
        let subject = format!("pool {}", config.name);
        let at = config.path.display().to_string();
        match inspect(config, node) {
            Ok(Some(mut inspection)) => {
                self.findings.append(&mut inspection.findings);
                let (name, inspection) = (config.name.clone(), Some(inspection));
                self.pools.push(PoolSeen { name, at, inspection });
            }
            Ok(None) if ImagePool::has_volumes_at(&config.path) => {
                self.without_id += 1;
                self.findings.push(Finding::by_hand(
                    "mark-missing",
                    subject,
                    format!("{at} holds volumes but no orlop.pool, so no daemon starts on it"),
                    "restore that file: it has the id that stands in the volumes' names",
                ));
            }
            Ok(None) => {
                self.without_id += 1;
                self.findings.push(Finding::by_hand(
                    "no-pool",
                    subject,
                    format!("there is no pool at {at}"),
                    "if there should be one, mount its filesystem; else the next start makes it",
                ));
            }
            Err(error @ Error::Damaged { .. }) => {
                self.without_id += 1;
                self.findings.push(Finding::by_hand(
                    "mark-damaged",
                    subject,
                    error.to_string(),
                    "restore that file: it has the id that stands in the volumes' names",
                ));
            }
            Err(error) => {
                self.without_id += 1;
                self.unseen.push(format!("{subject}: {error}"));
            }
        }
    }

    /// A pool that was copied has its original's id, and so have all volumes in it.
    fn compare_ids(&mut self) {
        let mut seen: Vec<(&str, &Inspection)> = Vec::new();
        let mut findings = Vec::new();
        for pool in &self.pools {
            let Some(inspection) = &pool.inspection else { continue };
            if let Some((other, _)) = seen.iter().find(|(_, it)| it.id == inspection.id) {
                findings.push(Finding::by_hand(
                    "same-id",
                    format!("pool {}", pool.name),
                    format!("it has the id {} of pool {other}: one is a copy", inspection.id),
                    "serve only one of them",
                ));
            }
            seen.push((&pool.name, inspection));
        }
        self.findings.extend(findings);
    }

    fn see_machine(&mut self, config: &Config, sockets: Option<&Sockets>) -> Result<()> {
        let run_dir = config.run_dir.join(&config.driver_name);
        let scan = MachineScan::of(&run_dir, &config.workload_cgroup)?;
        let in_use = scan.is_served()
            || self.inspections().any(|inspection| inspection.in_use)
            || sockets.is_some_and(|sockets| answers(&sockets.csi));
        let mut findings = self.scan(&scan, in_use)?;
        if in_use {
            std::thread::sleep(A_MOMENT);
            findings = lasting(findings, &self.scan(&scan, in_use)?);
        }
        self.findings.extend(findings);
        self.machine = Some(scan);
        Ok(())
    }

    fn scan(&self, scan: &MachineScan, in_use: bool) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for inspection in self.inspections() {
            let owner = inspection.last_owner.as_ref();
            let stamp = owner.and_then(|owner| owner.run_stamp.as_deref());
            findings.extend(scan.devices(&inspection.id, stamp, &inspection.devices)?);
        }
        findings.extend(scan.node_records(|id| self.existence(id))?);
        findings.extend(scan.limits()?);
        if !in_use {
            findings.extend(scan.frozen()?);
        }
        Ok(findings)
    }

    fn existence(&self, id: &VolumeId) -> VolumeExistence {
        let pool = self.inspections().find(|inspection| inspection.id == *id.pool());
        match pool.map(|inspection| inspection.holds_volume(id)) {
            Some(Ok(true)) => VolumeExistence::Exists,
            Some(Ok(false)) => VolumeExistence::Gone,
            Some(Err(_)) => VolumeExistence::Unknown,
            None if self.without_id > 0 || self.rbd_ids.contains(id.pool()) => {
                VolumeExistence::Unknown
            }
            None => VolumeExistence::PoolNotConfigured,
        }
    }
}

fn inspect(config: &ImagePoolConfig, node: &NodeId) -> Result<Option<Inspection>> {
    let Some(mut first) = ImagePool::inspect(config, node)? else {
        return Ok(None);
    };
    if first.in_use && !first.findings.is_empty() {
        std::thread::sleep(A_MOMENT);
        let later = ImagePool::inspect(config, node)?;
        let later = later.map(|mut later| std::mem::take(&mut later.findings)).unwrap_or_default();
        first.findings = lasting(std::mem::take(&mut first.findings), &later);
    }
    Ok(Some(first))
}

fn lasting(findings: Vec<Finding>, later: &[Finding]) -> Vec<Finding> {
    let lasts = |finding: &Finding| later.iter().any(|it| it.is_like(finding));
    findings.into_iter().filter(lasts).map(Finding::once_unused).collect()
}

/// Does not wait: a daemon that is stopped takes no connection once its backlog is full.
fn answers(socket: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(address) = SocketAddrUnix::new(socket) else { return false };
    let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    match made.and_then(|connecting| connect(&connecting, &address)) {
        Ok(()) | Err(Errno::AGAIN) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
