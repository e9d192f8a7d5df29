//! The examination of one pool.

use std::fmt::Display;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use orlop_model::{Error, Finding, NodeId, PoolId, Result};
use orlop_pools::image::{ImagePool, ImagePoolConfig};
use orlop_pools::lvm::{LvmPool, LvmPoolConfig};
use orlop_pools::rbd::{RbdPool, RbdPoolConfig};

use super::ExaminedPool;
use crate::check;
use crate::config::PoolConfig;
use crate::inspection::Inspection;

/// When a daemon serves the pool: after this time, files of a call that was running are gone.
pub(super) const SECOND_SCAN_AFTER: Duration = Duration::from_secs(1);

/// The result of examining one pool.
#[derive(Default)]
pub(super) struct PoolExamination {
    /// `None`: not even the id could be read.
    pub(super) id: Option<PoolId>,
    pub(super) pool: Option<ExaminedPool>,
    pub(super) findings: Vec<Finding>,
    pub(super) warning: Option<String>,
    pub(super) not_examined: Option<String>,
}

impl PoolExamination {
    fn of(pool: &PoolConfig, node: &NodeId) -> Self {
        let examination = match pool {
            PoolConfig::Image(pool) => Self::of_image_pool(pool, node),
            PoolConfig::Lvm(pool) => Self::of_lvm_pool(pool, node),
            PoolConfig::Rbd(pool) => Self::of_rbd_pool(pool),
        };
        Self { warning: check::volatility(pool), ..examination }
    }

    fn of_rbd_pool(pool: &RbdPoolConfig) -> Self {
        let (name, at) = (pool.name.clone(), format!("the Ceph pool {}", pool.pool));
        let inspected = RbdPool::inspect(pool);
        let id = inspected.as_ref().ok().map(|(id, _)| id.clone());
        let is_examined = id.is_some();
        let examined = ExaminedPool { name, at, id, is_examined, inspection: None, run_dir: None };
        let examined = Some(examined);
        match inspected {
            Ok((id, findings)) => {
                Self { id: Some(id), pool: examined, findings, ..Self::default() }
            }
            Err(error) => {
                let not_examined = Some(format!("pool {}: {error}", pool.name));
                Self { pool: examined, not_examined, ..Self::default() }
            }
        }
    }

    fn of_image_pool(config: &ImagePoolConfig, node: &NodeId) -> Self {
        let subject = format!("pool {}", config.name);
        let at = config.path.display().to_string();
        let inspected = inspect(|| Ok(ImagePool::inspect(config, node)?.map(Inspection::from)));
        let finding = match inspected {
            Ok(Some(inspection)) => return Self::inspected(&config.name, at, inspection),
            Ok(None) if ImagePool::has_volumes_at(&config.path) => Finding::by_hand(
                "mark-missing",
                subject,
                format!("{at} holds volumes but no orlop.pool, so no daemon starts on it"),
                "restore that file: it has the pool id, which is part of the id of each volume",
            ),
            Ok(None) => match ImagePool::findings_of_removed(&config.path) {
                Ok(findings) if findings.is_empty() => Finding::by_hand(
                    "no-pool",
                    subject,
                    format!("there is no pool at {at}"),
                    advice_without_pool(config),
                ),
                Ok(findings) => return Self { findings, ..Self::default() },
                Err(error) => {
                    let not_examined = Some(format!("{subject}: {error}"));
                    return Self { not_examined, ..Self::default() };
                }
            },
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
                let not_examined = Some(format!("{subject}: {error}"));
                return Self { not_examined, ..Self::default() };
            }
        };
        Self { findings: vec![finding], ..Self::default() }
    }

    fn of_lvm_pool(config: &LvmPoolConfig, node: &NodeId) -> Self {
        let LvmPoolConfig { name, group, thin_pool, .. } = config;
        let subject = format!("pool {name}");
        let finding = match inspect(|| Ok(LvmPool::inspect(config, node)?.map(Inspection::from))) {
            Ok(Some(inspection)) => {
                return Self::inspected(name, format!("{group}/{thin_pool}"), inspection);
            }
            Ok(None) => Finding::by_hand(
                "no-pool",
                subject,
                format!("the volume group {group} has no pool of Orlop in a thin pool {thin_pool}"),
                "if there should be one, correct the configuration; else the next start makes it, unless \
                 `create` is false",
            ),
            Err(error @ Error::Damaged { .. }) => Finding::by_hand(
                "mark-damaged",
                subject,
                error.to_string(),
                "restore that tag: it has the pool id, which is part of the id of each volume",
            ),
            Err(error) => {
                let not_examined = Some(format!("{subject}: {error}"));
                return Self { not_examined, ..Self::default() };
            }
        };
        Self { findings: vec![finding], ..Self::default() }
    }

    fn inspected(name: &str, at: String, mut inspection: Inspection) -> Self {
        let findings = std::mem::take(&mut inspection.findings);
        let id = Some(inspection.id.clone());
        let examined = ExaminedPool {
            name: name.to_owned(),
            at,
            id: id.clone(),
            is_examined: true,
            inspection: Some(inspection),
            run_dir: None,
        };
        Self { id, pool: Some(examined), findings, ..Self::default() }
    }

    pub(super) fn failed(pool: &PoolConfig, why: impl Display) -> Self {
        Self { not_examined: Some(format!("pool {}: {why}", pool.name())), ..Self::default() }
    }
}

/// On a separate thread, so that a pool on a hanging disk does not keep the others from being examined.
pub(super) fn start_examining(
    pool: &PoolConfig,
    node: &NodeId,
) -> std::io::Result<Receiver<PoolExamination>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let (pool, node) = (pool.clone(), node.clone());
    let examine = move || {
        // The receiver is gone only if it took too long.
        let _ = sender.send(PoolExamination::of(&pool, &node));
    };
    thread::Builder::new().name("doctor".to_owned()).spawn(examine)?;
    Ok(receiver)
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

/// Twice beside a daemon, so that what a running call is making is no finding.
fn inspect(look: impl Fn() -> Result<Option<Inspection>>) -> Result<Option<Inspection>> {
    let Some(mut first) = look()? else { return Ok(None) };
    if first.in_use && !first.findings.is_empty() {
        thread::sleep(SECOND_SCAN_AFTER);
        let later = look()?.map(|later| later.findings).unwrap_or_default();
        first.findings = lasting(std::mem::take(&mut first.findings), &later);
    }
    Ok(Some(first))
}

pub(super) fn lasting(findings: Vec<Finding>, later: &[Finding]) -> Vec<Finding> {
    let lasts = |finding: &Finding| later.iter().any(|it| it.is_like(finding));
    findings.into_iter().filter(lasts).map(Finding::once_unused).collect()
}
