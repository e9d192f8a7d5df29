//! The look itself: at every pool, then at the machine.

use std::fmt::Display;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use orlop_host::{MachineScan, VolumeExistence};
use orlop_model::{Error, Finding, NodeId, PoolId, Result, VolumeId};
use orlop_pools::image::{ImagePool, ImagePoolConfig, Inspection};
use orlop_pools::rbd::{RbdPool, RbdPoolConfig};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::check;
use crate::config::{Config, PoolConfig, Sockets};

/// When a daemon serves the pool: after this time, files of a call that was running are gone.
const SECOND_SCAN_AFTER: Duration = Duration::from_secs(1);
/// Far more than it takes on a disk that answers.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(30);
const NO_ANSWER: &str =
    "it did not answer within 30 seconds; its disk, or its Ceph cluster, is slow or hangs";

/// The pools and the run directory stay locked as long as this lives.
#[derive(Default)]
pub(crate) struct Examination {
    pub(crate) pools: Vec<PoolSeen>,
    pub(crate) findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub(crate) unseen: Vec<String>,
    /// How many configured pools have an unknown id.
    without_id: usize,
    /// The ids of the pools that were examined.
    ids: Vec<PoolId>,
    /// What is as it was asked for, and may not be what was meant.
    pub(crate) warnings: Vec<String>,
    machine: Option<MachineScan>,
}

pub(crate) struct PoolSeen {
    pub(crate) name: String,
    pub(crate) at: String,
    /// For image pools only.
    pub(crate) inspection: Option<Inspection>,
}

/// What came of the look at one pool.
#[derive(Default)]
struct PoolLook {
    /// Unknown where not even that could be found out.
    id: Option<PoolId>,
    seen: Option<PoolSeen>,
    findings: Vec<Finding>,
    warning: Option<String>,
    unseen: Option<String>,
}

impl PoolLook {
    fn at(pool: &PoolConfig, node: &NodeId) -> Self {
        let look = match pool {
            PoolConfig::Image(pool) => Self::at_image_pool(pool, node),
            PoolConfig::Rbd(pool) => Self::at_rbd_pool(pool),
        };
        Self { warning: check::volatility(pool), ..look }
    }

    fn at_rbd_pool(pool: &RbdPoolConfig) -> Self {
        let (name, at) = (pool.name.clone(), format!("the Ceph pool {}", pool.pool));
        let look = Self { seen: Some(PoolSeen { name, at, inspection: None }), ..Self::default() };
        match RbdPool::inspect(pool) {
            Ok((id, findings)) => Self { id: Some(id), findings, ..look },
            Err(error) => Self { unseen: Some(format!("pool {}: {error}", pool.name)), ..look },
        }
    }

    fn at_image_pool(config: &ImagePoolConfig, node: &NodeId) -> Self {
        let subject = format!("pool {}", config.name);
        let at = config.path.display().to_string();
        let finding = match inspect(config, node) {
            Ok(Some(mut inspection)) => {
                let findings = std::mem::take(&mut inspection.findings);
                let id = Some(inspection.id.clone());
                let (name, inspection) = (config.name.clone(), Some(inspection));
                let seen = Some(PoolSeen { name, at, inspection });
                return Self { id, seen, findings, ..Self::default() };
            }
            Ok(None) if ImagePool::has_volumes_at(&config.path) => Finding::by_hand(
                "mark-missing",
                subject,
                format!("{at} holds volumes but no orlop.pool, so no daemon starts on it"),
                "restore that file: it has the pool id, which is part of the id of each volume",
            ),
            Ok(None) => Finding::by_hand(
                "no-pool",
                subject,
                format!("there is no pool at {at}"),
                advice_without_pool(config),
            ),
            Err(error @ Error::Damaged { .. }) => {
                let of_image = ImagePool::finding_of_image(&config.path).ok().flatten();
                of_image.unwrap_or_else(|| {
                    Finding::by_hand(
                        "mark-damaged",
                        subject,
                        error.to_string(),
                        "restore that file: it has the pool id, which is part of the id of each \
                         volume",
                    )
                })
            }
            Err(error) => {
                let unseen = Some(format!("{subject}: {error}"));
                return Self { unseen, ..Self::default() };
            }
        };
        Self { findings: vec![finding], ..Self::default() }
    }

    fn not_possible(pool: &PoolConfig, why: impl Display) -> Self {
        Self { unseen: Some(format!("pool {}: {why}", pool.name())), ..Self::default() }
    }
}

/// A look in a thread: a pool on a disk that hangs hides no other.
fn begin_to_look(pool: &PoolConfig, node: &NodeId) -> std::io::Result<Receiver<PoolLook>> {
    let (sender, looked) = mpsc::sync_channel(1);
    let (pool, node) = (pool.clone(), node.clone());
    let look = move || {
        // The receiver is gone only if it took too long.
        let _ = sender.send(PoolLook::at(&pool, &node));
    };
    thread::Builder::new().name("look".to_owned()).spawn(look)?;
    Ok(looked)
}

impl Examination {
    /// `seen` gets each pool when it is known.
    pub(crate) fn of(
        config: &Config,
        sockets: Option<&Sockets>,
        mut seen: impl FnMut(&PoolSeen),
    ) -> Self {
        let deadline = Instant::now() + INSPECTION_TIMEOUT;
        let looks: Vec<_> =
            config.pools.iter().map(|pool| begin_to_look(pool, &config.node_id)).collect();
        let mut examination = Self::default();
        for (pool, looked) in config.pools.iter().zip(looks) {
            let left = deadline.saturating_duration_since(Instant::now());
            let look = match looked.map(|looked| looked.recv_timeout(left)) {
                Ok(Ok(look)) => look,
                Ok(Err(_)) => PoolLook::not_possible(pool, NO_ANSWER),
                Err(error) => PoolLook::not_possible(pool, error),
            };
            look.seen.iter().for_each(&mut seen);
            examination.add(look);
        }
        examination.compare_ids();
        if let Err(error) = examination.see_machine(config, sockets) {
            examination.unseen.push(format!("this machine: {error}"));
        }
        examination
    }

    fn add(&mut self, look: PoolLook) {
        match look.id {
            Some(id) => self.ids.push(id),
            None => self.without_id += 1,
        }
        self.pools.extend(look.seen);
        self.findings.extend(look.findings);
        self.warnings.extend(look.warning);
        self.unseen.extend(look.unseen);
    }

    pub(crate) fn inspections(&self) -> impl Iterator<Item = &Inspection> {
        self.pools.iter().filter_map(|pool| pool.inspection.as_ref())
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
        if in_use && !findings.is_empty() {
            std::thread::sleep(SECOND_SCAN_AFTER);
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
            None if self.without_id > 0 || self.ids.contains(id.pool()) => VolumeExistence::Unknown,
            None => VolumeExistence::PoolNotConfigured,
        }
    }
}

/// What a start would say, where it would not make a pool.
fn advice_without_pool(config: &ImagePoolConfig) -> String {
    match ImagePool::check(config) {
        Err(Error::Unreachable { reason, .. }) => reason.to_string(),
        Ok(_) | Err(_) => {
            "if there should be one, mount its filesystem; else the next start makes it".to_owned()
        }
    }
}

fn inspect(config: &ImagePoolConfig, node: &NodeId) -> Result<Option<Inspection>> {
    let Some(mut first) = ImagePool::inspect(config, node)? else {
        return Ok(None);
    };
    if first.in_use && !first.findings.is_empty() {
        std::thread::sleep(SECOND_SCAN_AFTER);
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
