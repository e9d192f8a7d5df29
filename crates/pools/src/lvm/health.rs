//! Is the pool well, and is a volume?
//!
//! Whatever is asked of many volumes is answered from one report of LVM of the last seconds.

mod storage_probe;

use std::sync::Arc;

use orlop_model::{
    Condition, Error, Health, HealthReason, Problem, Result, SnapshotId, SnapshotRecord,
    StorageProbe, VolumeId, VolumeRecord,
};

use super::capacity::LvmCapacity;
use super::catalogue::LvmCatalogue;
use super::commands::Lvm;
use super::lv_health::problem_of_lv;
use super::report::{GroupReport, Lv};
use crate::recorded::Recorded;
use storage_probe::PoolProbe;

#[derive(Debug)]
pub(super) struct LvmHealth {
    lvm: Arc<Lvm>,
    catalogue: Arc<LvmCatalogue>,
    capacity: Arc<LvmCapacity>,
    pool: String,
    thin_pool: String,
    probe: PoolProbe,
}

impl LvmHealth {
    pub(super) fn new(
        lvm: &Arc<Lvm>,
        catalogue: &Arc<LvmCatalogue>,
        capacity: &Arc<LvmCapacity>,
        pool: &str,
        thin_pool: &str,
    ) -> Self {
        Self {
            lvm: Arc::clone(lvm),
            catalogue: Arc::clone(catalogue),
            capacity: Arc::clone(capacity),
            pool: pool.to_owned(),
            thin_pool: thin_pool.to_owned(),
            probe: PoolProbe::new(lvm, pool, thin_pool),
        }
    }

    fn checking(&self) -> String {
        format!("check pool {}", self.pool)
    }

    fn outlook(&self) -> Outlook {
        let unusable =
            |problem| Outlook { report: None, unusable: Some(problem), restricted: Vec::new() };
        let report = match self.lvm.recent_report() {
            Ok(report) => report,
            Err(error) => {
                let text = error.to_string();
                return unusable(Problem::new(HealthReason::PoolUnreachable, text));
            }
        };
        let lv = self.lvm.group().lv(&self.thin_pool);
        let Some(thin_pool) = report.lv(&self.thin_pool) else {
            let text =
                format!("the thin pool {lv} is gone: it was removed or renamed; rename it back");
            return unusable(Problem::new(HealthReason::PoolErrors, text));
        };
        match problem_of_thin_pool(&lv, thin_pool) {
            Some((problem, Use::None)) => unusable(problem),
            Some((problem, Use::Some)) => {
                Outlook { report: Some(report), unusable: None, restricted: vec![problem] }
            }
            None => {
                let mut restricted = Vec::from_iter(missing_disks(&self.lvm, &report));
                if let Ok(Some(text)) = self.capacity.shortage() {
                    restricted.push(Problem::new(HealthReason::PoolFull, text));
                }
                Outlook { report: Some(report), unusable: None, restricted }
            }
        }
    }

    fn condition_within(&self, id: &VolumeId, outlook: &Outlook) -> Result<Condition> {
        let volumes = self.catalogue.volume_objects();
        let record = match volumes.get(id) {
            Ok(Some(record)) => record,
            Ok(None) => return Err(VolumeRecord::missing(id)),
            Err(damaged) => return Ok(Condition::of_error(&damaged)),
        };
        if let Some(problem) = &outlook.unusable {
            return Ok(Condition::of(vec![problem.clone()], ""));
        }
        let mut condition = Condition::healthy("the data is there, with room to write");
        if let Some(report) = &outlook.report {
            let lv = report.lv(&id.to_string());
            condition.extend(self.problem_of_lv(id, lv, record.capacity_bytes));
        }
        // Last: a volume with damaged data has worse to tell.
        condition.extend(outlook.restricted.iter().cloned());
        Ok(condition)
    }

    fn problem_of_lv(
        &self,
        id: &impl std::fmt::Display,
        lv: Option<&Lv>,
        promised: u64,
    ) -> Option<Problem> {
        let path = self.lvm.group().lv(id);
        let Some(lv) = lv else {
            let text = format!(
                "its logical volume {path} is gone: it was removed or renamed by hand; rename it back, or restore it \
                 from a backup"
            );
            return Some(Problem::new(HealthReason::BackingFileMissing, text));
        };
        if lv.size < promised {
            let text = format!(
                "its logical volume {path} has {} bytes, its record says {promised}: something has made it smaller; \
                 restore it from a backup (extending it would put zeroes where data was)",
                lv.size
            );
            return Some(Problem::new(HealthReason::BackingFileTruncated, text));
        }
        problem_of_lv(self.lvm.group(), lv)
    }
}

impl Health for LvmHealth {
    /// An operator has to act, so Probe reports a failure with its reason, although other calls answer
    /// UNAVAILABLE, which only asks callers to retry.
    fn check(&self) -> Result<()> {
        if let Some(refusal) = self.probe.refusal() {
            return Err(refusal);
        }
        match self.outlook().unusable {
            Some(problem) => Err(Error::failed(self.checking(), problem.message)),
            None => Ok(()),
        }
    }

    fn storage_probe(&self) -> Option<&dyn StorageProbe> {
        Some(&self.probe)
    }

    fn shortage(&self) -> Result<Option<String>> {
        self.capacity.shortage()
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        self.condition_within(id, &self.outlook())
    }

    fn conditions(&self, ids: &[VolumeId]) -> Vec<Result<Condition>> {
        let outlook = self.outlook();
        ids.iter().map(|id| self.condition_within(id, &outlook)).collect()
    }

    fn abnormal_snapshots(&self) -> Result<Vec<(SnapshotId, Problem)>> {
        let report = self.lvm.recent_report()?;
        let problem = |(id, record): (SnapshotId, Result<SnapshotRecord>)| {
            let found = match record {
                Ok(record) if !self.catalogue.is_visible(&record) => None,
                Ok(record) => {
                    self.problem_of_lv(&id, report.lv(&id.to_string()), record.size_bytes)
                }
                Err(error) => Some(Problem::of(&error)),
            };
            Some((id, found?))
        };
        Ok(self
            .catalogue
            .snapshot_objects()
            .page(None, 0)
            .into_iter()
            .filter_map(problem)
            .collect())
    }

    fn problems(&self) -> Vec<Problem> {
        let outlook = self.outlook();
        outlook.unusable.into_iter().chain(outlook.restricted).collect()
    }
}

/// What is so for all volumes of the pool.
struct Outlook {
    report: Option<Arc<GroupReport>>,
    /// Then nothing can be said of the data.
    unusable: Option<Problem>,
    restricted: Vec<Problem>,
}

/// What a thin pool with a problem is still good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    None,
    /// What is there can be read.
    Some,
}

/// `lv`: with its volume group.
pub(super) fn problem_of_thin_pool(lv: &str, thin_pool: &Lv) -> Option<(Problem, Use)> {
    let of = |reason, text: String, left| Some((Problem::new(reason, text), left));
    match thin_pool.health.as_str() {
        "failed" => of(
            HealthReason::PoolErrors,
            format!("the thin pool {lv} has failed; see 'Metadata check and repair' in lvmthin(7)"),
            Use::None,
        ),
        "metadata_read_only" => of(
            HealthReason::PoolReadOnly,
            format!(
                "the thin pool {lv} takes no changes: its metadata is full, or could not be written; see 'Metadata \
                 space exhaustion' in lvmthin(7)"
            ),
            Use::Some,
        ),
        "out_of_data" => of(
            HealthReason::PoolFull,
            format!(
                "the thin pool {lv} is full, and writes to new places fail; enlarge it with `lvextend`, or delete \
                 volumes or snapshots"
            ),
            Use::Some,
        ),
        "partial" if !thin_pool.is_active() => of(
            HealthReason::PoolUnreachable,
            format!("a disk of the thin pool {lv} is missing; attach it: `pvs` shows which"),
            Use::None,
        ),
        _ if !thin_pool.is_active() => of(
            HealthReason::PoolUnreachable,
            format!(
                "the thin pool {lv} is not active; `lvchange --activate y {lv}` says why if it cannot be"
            ),
            Use::None,
        ),
        "partial" => of(
            HealthReason::PoolErrors,
            format!(
                "a disk of the thin pool {lv} is missing: what is on it cannot be read, unless the thin pool has \
                 copies of it; attach it: `pvs` shows which"
            ),
            Use::Some,
        ),
        _ => None,
    }
}

pub(super) fn missing_disks(lvm: &Lvm, report: &GroupReport) -> Option<Problem> {
    let (missing, group) = (report.group.missing_disks, lvm.group());
    (missing > 0).then(|| {
        let text = format!(
            "{missing} of the disks of the volume group {group} are missing, and LVM changes little in it until they \
             are back; attach them: `pvs` shows which. If one is lost, run `lvconvert --repair` for each volume with \
             copies or parity, and then `vgreduce --removemissing {group}`"
        );
        Problem::new(HealthReason::PoolReadOnly, text)
    })
}

#[cfg(test)]
mod tests;
