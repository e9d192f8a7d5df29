//! ControllerListVolumeHealth, ControllerGetVolumeHealth, NodeGetVolumeHealth and NodeGetStorageHealth: what is
//! wrong, in the words of `HealthReason`. None of them waits for a pool that does not answer.

use std::collections::BTreeMap;

use orlop_model::{
    Condition, Error, HealthReason, NodeRecord, Problem, Result, Stage, TargetPath, VolumeId,
};

use crate::engine::{Engine, PoolRef};
use crate::list::page;
use crate::request::{AbnormalVolume, Page, VolumeRef};

/// How many conditions are asked for at once, for a page that lists only volumes with problems.
const BATCH: usize = 512;

impl Engine {
    /// As [`Engine::list_volumes`], without those that are well. All or an error: what is missing is taken for
    /// healthy.
    pub fn list_abnormal_volumes(
        &self,
        after: Option<&VolumeId>,
        max: usize,
    ) -> Result<Page<AbnormalVolume, VolumeId>> {
        self.check_none_absent(|_| true)?;
        let mut found = Vec::new();
        let wanted = if max == 0 { usize::MAX } else { max.saturating_add(1) };
        for pool in self.pools().values() {
            if after.is_some_and(|after| after.pool() > pool.id()) {
                continue;
            }
            self.add_abnormal_of(pool, after, wanted, &mut found)?;
            if found.len() >= wanted {
                break;
            }
        }
        Ok(page(found, max, |entry| entry.id.clone()))
    }

    fn add_abnormal_of(
        &self,
        pool: &PoolRef,
        after: Option<&VolumeId>,
        wanted: usize,
        found: &mut Vec<AbnormalVolume>,
    ) -> Result<()> {
        let mut last = after.cloned();
        // Each question to a pool that hangs takes its time, so there is one.
        let mut hung = None;
        while found.len() < wanted {
            let batch = pool.catalogue().volumes(last.as_ref(), BATCH)?;
            let (ids, records): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let Some(end) = ids.last().cloned() else { break };
            let conditions = match &hung {
                None => self.try_conditions_of(pool, &ids),
                Some(error) => Err(Error::clone(error)),
            };
            let conditions = conditions.unwrap_or_else(|error| {
                let condition = Condition::of_error(&error);
                hung = Some(error);
                ids.iter().map(|_| Ok(condition.clone())).collect()
            });
            for ((id, record), condition) in ids.into_iter().zip(records).zip(conditions) {
                let problems = match (record, condition) {
                    // Deleted since it was listed.
                    (_, Err(Error::NoSuchVolume(_))) => continue,
                    (Ok(_), Ok(condition)) => self.with_lost_writes(&id, condition).into_problems(),
                    (Ok(_), Err(error)) | (Err(error), _) => vec![Problem::of(&error)],
                };
                if !problems.is_empty() {
                    found.push(AbnormalVolume { id, problems });
                }
            }
            last = Some(end);
        }
        Ok(())
    }

    /// Nothing, if it is well.
    pub fn volume_problems(&self, id: &VolumeId) -> Result<Vec<Problem>> {
        let pool = self.require_pool_of(id)?;
        match pool.catalogue().volume(id) {
            Ok(Some(_)) => self.problems_in_pool(pool, id),
            Ok(None) => Err(Error::NoSuchVolume(id.to_string())),
            Err(error) => Ok(vec![Problem::of(&error)]),
        }
    }

    fn problems_in_pool(&self, pool: &PoolRef, id: &VolumeId) -> Result<Vec<Problem>> {
        let mut conditions = self.conditions_of(pool, std::slice::from_ref(id)).into_iter();
        match conditions.next() {
            Some(Ok(condition)) => Ok(self.with_lost_writes(id, condition).into_problems()),
            Some(Err(gone @ Error::NoSuchVolume(_))) => Err(gone),
            Some(Err(error)) => Ok(vec![Problem::of(&error)]),
            None => Ok(Vec::new()),
        }
    }

    /// As seen from this node, where the volume is in use or was to be. A path that is given has to be the
    /// volume's; without any, all that the node record names are checked.
    pub fn node_volume_problems(
        &self,
        volume: &VolumeRef,
        paths: &[TargetPath],
    ) -> Result<Vec<Problem>> {
        let id = self.resolve(volume)?;
        let node = self.host().node_record(&id)?;
        let failure = self.stage_failures().of(&id);
        let is_here = !node.is_empty() || failure.is_some();
        let Some(pool) = self.pools().get(id.pool()) else {
            return self.without_its_pool(&id, is_here, failure.as_ref());
        };
        if let Err(hung) = self.check_answers(pool.id()) {
            return match is_here {
                true => Ok(with_failure(vec![Problem::of(&hung)], failure.as_ref())),
                false => Err(not_on_node(&id)),
            };
        }
        match pool.catalogue().volume(&id) {
            Ok(None) => {
                self.stage_failures().clear(&id);
                Err(Error::NoSuchVolume(volume.to_string()))
            }
            Err(error) if is_here => Ok(with_failure(vec![Problem::of(&error)], failure.as_ref())),
            Err(error) => Err(error),
            Ok(Some(_)) => self.problems_on_node(pool, &id, &node, failure.as_ref(), paths),
        }
    }

    fn problems_on_node(
        &self,
        pool: &PoolRef,
        id: &VolumeId,
        node: &NodeRecord,
        failure: Option<&Error>,
        paths: &[TargetPath],
    ) -> Result<Vec<Problem>> {
        let Some(stage) = &node.stage else {
            // Without a record it may be in use all the same (decision 0031).
            if failure.is_none() && self.mounted_at(pool, id)?.is_empty() {
                return Err(not_on_node(id));
            }
            return Ok(with_failure(self.problems_in_pool(pool, id)?, failure));
        };
        for path in paths {
            self.stage_at(pool, id, node, path)?;
        }
        let mut seen = Condition::healthy("");
        for path in in_use_at(node, stage, paths) {
            seen.extend(self.problems_at(pool, id, stage, path)?);
        }
        // What is staged can be used, whatever else was asked for since.
        let failure = match self.live_stage(pool, id)? {
            Some(_) => None,
            None => failure,
        };
        seen.extend(self.problems_in_pool(pool, id)?);
        Ok(with_failure(seen.into_problems(), failure))
    }

    fn without_its_pool(
        &self,
        id: &VolumeId,
        is_here: bool,
        failure: Option<&Error>,
    ) -> Result<Vec<Problem>> {
        let why = match self.require_pool_of(id) {
            Err(why) => why,
            Ok(_) => return Err(not_on_node(id)),
        };
        match is_here {
            true => Ok(with_failure(vec![Problem::of(&why)], failure)),
            false => Err(why),
        }
    }

    /// Of all pools that are configured here, and of the machine. A reason occurs once, whichever pools it is of.
    pub fn storage_problems(&self) -> Vec<Problem> {
        let mut by_reason: BTreeMap<HealthReason, Vec<(String, String)>> = BTreeMap::new();
        let mut add = |name: &str, problem: Problem| {
            let of_reason = by_reason.entry(problem.reason).or_default();
            of_reason.push((name.to_owned(), problem.message));
        };
        for pool in self.pools().values() {
            let found = self.query(pool, |pool| pool.health().problems());
            let found = found.unwrap_or_else(|error| vec![Problem::of(&error)]);
            found.into_iter().for_each(|problem| add(pool.name(), problem));
        }
        for absent in self.absent() {
            let message = absent.refusal().to_string();
            add(&absent.name, Problem::new(HealthReason::PoolUnreachable, message));
        }
        if let Err(error) = self.host().check_health() {
            add("", Problem::new(HealthReason::ToolMissing, error.to_string()));
        }
        by_reason.into_iter().map(|(reason, found)| summed_up(reason, found)).collect()
    }

    /// For an attempt that was refused before it reached this.
    pub fn note_stage_failure(&self, id: &VolumeId, error: &Error) {
        self.stage_failures().note(id, error);
    }
}

fn in_use_at<'a>(
    node: &'a NodeRecord,
    stage: &'a Stage,
    given: &'a [TargetPath],
) -> Vec<&'a TargetPath> {
    if !given.is_empty() {
        return given.iter().collect();
    }
    let published = node.publications.iter().map(|publication| &publication.target);
    std::iter::once(&stage.path).chain(published).collect()
}

/// First: it is why the volume is not there.
fn with_failure(problems: Vec<Problem>, failure: Option<&Error>) -> Vec<Problem> {
    let failed = failure.map(|error| Problem::new(HealthReason::StageFailed, error.to_string()));
    failed.into_iter().chain(problems).collect()
}

fn not_on_node(id: &VolumeId) -> Error {
    Error::NotOnNode(id.to_string())
}

fn summed_up(reason: HealthReason, found: Vec<(String, String)>) -> Problem {
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let message = match found.as_slice() {
        [(_, message)] => message.clone(),
        [(_, first), ..] => format!("pools {}: {first}", names.join(", ")),
        [] => String::new(),
    };
    Problem::new(reason, message)
}
