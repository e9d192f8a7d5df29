//! Watches the volumes that are in use on this node, so that what goes wrong with them is known and logged although no
//! orchestrator asks for statistics: lost writes, filesystems that have given up, mounts that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Condition, HealthReason, Problem, Result, Severity, VolumeId};

use crate::engine::{Engine, PoolRef};
use crate::query_threads::QueryThreads;

/// The interval between two rounds, each of which checks all volumes in use.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);
/// When volumes are checked again in which a round has seen something new.
const SECOND_CHECK_AFTER: Duration = Duration::from_secs(1);
/// How long a round waits for one volume, before it goes on with the next.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How many checks may hang at once: each is a thread that waits for a disk. No further ones are begun then.
const MAX_HUNG_CHECKS: usize = 8;
/// How long the end of a use waits for a check of the same volume, which takes milliseconds on storage that answers.
const USE_END_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct StagedWatch {
    state: Mutex<WatchState>,
    ended: Condvar,
    threads: QueryThreads,
}

struct WatchState {
    last_round: Instant,
    is_round_under_way: bool,
    /// Volumes that are checked now, or have or may have a problem.
    volumes: BTreeMap<VolumeId, WatchedVolume>,
}

#[derive(Default)]
struct WatchedVolume {
    is_under_way: bool,
    /// Seen by one check. A second one has to see it too: the first may have come in the middle of a call, or between
    /// an unmount and a mount by hand.
    suspected: BTreeSet<HealthReason>,
    known: Vec<Problem>,
}

impl WatchedVolume {
    fn is_well(&self) -> bool {
        !self.is_under_way && self.suspected.is_empty() && self.known.is_empty()
    }

    fn has_unconfirmed(&self) -> bool {
        let is_known = |reason| self.known.iter().any(|problem| problem.reason == reason);
        self.suspected.iter().any(|reason| !is_known(*reason))
    }
}

enum Round {
    All,
    /// What was seen only once.
    Again(Vec<VolumeId>),
}

/// What a check has changed in what is known of a volume.
#[derive(Default)]
struct Change {
    begun: Vec<Problem>,
    over: Vec<Problem>,
}

impl Default for StagedWatch {
    fn default() -> Self {
        let state = WatchState {
            last_round: Instant::now(),
            is_round_under_way: false,
            volumes: BTreeMap::new(),
        };
        Self { state: Mutex::new(state), ended: Condvar::new(), threads: QueryThreads::default() }
    }
}

impl StagedWatch {
    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_begin_round(&self) -> Option<Round> {
        let mut state = self.state();
        if state.is_round_under_way {
            return None;
        }
        let round = if state.last_round.elapsed() >= ROUND_INTERVAL {
            state.last_round = Instant::now();
            Round::All
        } else if state.last_round.elapsed() >= SECOND_CHECK_AFTER {
            let unconfirmed = state.volumes.iter().filter(|(_, volume)| volume.has_unconfirmed());
            let unconfirmed: Vec<VolumeId> = unconfirmed.map(|(id, _)| id.clone()).collect();
            if unconfirmed.is_empty() {
                return None;
            }
            Round::Again(unconfirmed)
        } else {
            return None;
        };
        state.is_round_under_way = true;
        Some(round)
    }

    /// `false`: it is being checked, or too many checks hang.
    fn try_begin(&self, id: &VolumeId) -> bool {
        let mut state = self.state();
        let running = state.volumes.values().filter(|volume| volume.is_under_way).count();
        let is_under_way = state.volumes.get(id).is_some_and(|volume| volume.is_under_way);
        if is_under_way || running >= MAX_HUNG_CHECKS {
            return false;
        }
        state.volumes.entry(id.clone()).or_default().is_under_way = true;
        true
    }

    /// What the node knows to be wrong with a volume that is in use here.
    pub(crate) fn problems(&self, id: &VolumeId) -> Vec<Problem> {
        self.state().volumes.get(id).map(|volume| volume.known.clone()).unwrap_or_default()
    }

    pub(crate) fn with_problems(&self, id: &VolumeId, mut condition: Condition) -> Condition {
        condition.extend(self.problems(id));
        condition
    }

    /// Before something of the volume is unmounted: a check has its filesystem open for a moment. `false`: it hangs.
    pub(crate) fn wait_for(&self, id: &VolumeId) -> bool {
        let is_under_way = |state: &mut WatchState| {
            state.volumes.get(id).is_some_and(|volume| volume.is_under_way)
        };
        let waited = self.ended.wait_timeout_while(self.state(), USE_END_TIMEOUT, is_under_way);
        let (_state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }

    fn note(&self, id: &VolumeId, found: Vec<Problem>) -> Change {
        let mut state = self.state();
        let volume = state.volumes.entry(id.clone()).or_default();
        let suspected = found.iter().map(|problem| problem.reason).collect();
        let before = std::mem::replace(&mut volume.suspected, suspected);
        let has = |all: &[Problem], reason| all.iter().any(|problem| problem.reason == reason);
        let known: Vec<Problem> = found
            .into_iter()
            .filter(|it| before.contains(&it.reason) || has(&volume.known, it.reason))
            .collect();
        let begun = known.iter().filter(|it| !has(&volume.known, it.reason)).cloned().collect();
        let over = volume.known.iter().filter(|it| !has(&known, it.reason)).cloned().collect();
        volume.known = known;
        Change { begun, over }
    }

    /// For a volume that is not staged here any more.
    pub(crate) fn forget(&self, id: &VolumeId) {
        self.note(id, Vec::new()).log(id);
        self.state().volumes.retain(|_, volume| !volume.is_well());
    }

    fn forget_all_but(&self, staged: &[VolumeId]) {
        let gone: Vec<VolumeId> = {
            let state = self.state();
            state.volumes.keys().filter(|id| staged.binary_search(id).is_err()).cloned().collect()
        };
        gone.iter().for_each(|id| self.forget(id));
    }
}

impl Change {
    /// Each problem once when it begins, and once when it is over.
    fn log(&self, id: &VolumeId) {
        for Problem { reason, message } in &self.begun {
            let (severity, reason) = (reason.severity(), reason.as_str());
            match severity {
                Severity::Degraded => tracing::warn!(
                    volume = %id,
                    reason,
                    "something is wrong with a volume that is in use on this node: {message}"
                ),
                Severity::Inaccessible | Severity::DataLoss => tracing::error!(
                    volume = %id,
                    reason,
                    "a volume that is in use on this node does not work: {message}"
                ),
            }
        }
        for problem in &self.over {
            let reason = problem.reason.as_str();
            tracing::info!(volume = %id, reason, "what was wrong with the volume on this node is over");
        }
    }
}

/// Ends the round, also if it panics.
struct RoundUnderWay(Arc<StagedWatch>);

impl Drop for RoundUnderWay {
    fn drop(&mut self) {
        self.0.state().is_round_under_way = false;
    }
}

/// Ends the check of one volume, also if it panics.
struct CheckUnderWay {
    watch: Arc<StagedWatch>,
    id: VolumeId,
}

impl Drop for CheckUnderWay {
    fn drop(&mut self) {
        let mut state = self.watch.state();
        if let Some(volume) = state.volumes.get_mut(&self.id) {
            volume.is_under_way = false;
            if volume.is_well() {
                state.volumes.remove(&self.id);
            }
        }
        drop(state);
        self.watch.ended.notify_all();
    }
}

impl Engine {
    /// To be called about every second. Does not wait.
    pub fn watch_staged(&self) {
        let Some(round) = self.staged_watch().try_begin_round() else { return };
        let under_way = RoundUnderWay(Arc::clone(self.staged_watch()));
        let engine = self.clone();
        let check = move || {
            match round {
                Round::All => engine.check_staged(),
                Round::Again(volumes) => engine.check_each(volumes),
            }
            drop(under_way);
        };
        if let Err(error) = thread::Builder::new().name("volume-watch".to_owned()).spawn(check) {
            tracing::debug!(%error, "cannot start a thread to check the volumes in use");
        }
    }

    /// One round. A volume that hangs holds it up for a moment, and is not checked again before it answers.
    pub fn check_staged(&self) {
        match self.host().node_records() {
            Ok(staged) => {
                self.staged_watch().forget_all_but(&staged);
                self.check_each(staged);
            }
            Err(error) => tracing::debug!(%error, "cannot list the volumes in use"),
        }
    }

    fn check_each(&self, volumes: Vec<VolumeId>) {
        let mut by_pool = BTreeMap::new();
        for id in volumes {
            let Some(pool) = self.pools().get(id.pool()) else { continue };
            // That the pool hangs is known, and a check would hang as well.
            if self.check_answers(pool.id()).is_err() {
                continue;
            }
            let has_problems = by_pool.entry(pool.id()).or_insert_with(|| self.has_problems(pool));
            self.check_in_time(id, *has_problems);
        }
    }

    /// Lost writes are likely then.
    fn has_problems(&self, pool: &PoolRef) -> bool {
        let found = self.query(pool, |pool| pool.health().problems());
        found.is_ok_and(|problems| !problems.is_empty())
    }

    fn check_in_time(&self, id: VolumeId, is_urgent: bool) {
        if !self.staged_watch().try_begin(&id) {
            return;
        }
        let under_way = CheckUnderWay { watch: Arc::clone(self.staged_watch()), id };
        let engine = self.clone();
        let (done, waiting) = mpsc::sync_channel::<()>(1);
        let check = move || {
            let id = &under_way.id;
            match engine.check_on_node(id, is_urgent) {
                Ok(Some(found)) => under_way.watch.note(id, found).log(id),
                Ok(None) => {}
                Err(error) => tracing::debug!(volume = %id, %error, "cannot check a volume in use"),
            }
            drop(under_way);
            drop(done);
        };
        match self.staged_watch().threads.run(check) {
            // The channel is closed at the end, without a message.
            Ok(()) => drop(waiting.recv_timeout(CHECK_TIMEOUT)),
            Err(error) => tracing::debug!(%error, "cannot start a thread to check a volume in use"),
        }
    }

    /// `None`: a call was changing its use at the same time, so that nothing is known.
    fn check_on_node(&self, id: &VolumeId, is_urgent: bool) -> Result<Option<Vec<Problem>>> {
        if !self.locks().is_volume_free(id.digest()) {
            return Ok(None);
        }
        let pool = self.require_pool_of(id)?;
        let node = self.host().node_record(id)?;
        let Some(stage) = &node.stage else { return Ok(Some(Vec::new())) };
        let mut seen = Condition::healthy("");
        let targets = node.publications.iter().map(|publication| &publication.target);
        for path in std::iter::once(&stage.path).chain(targets) {
            seen.extend(self.problems_at(pool, id, stage, path)?);
        }
        self.check_writeback(pool, id, stage, is_urgent || seen.is_abnormal())?;
        let is_unchanged =
            self.locks().is_volume_free(id.digest()) && self.host().node_record(id)? == node;
        Ok(is_unchanged.then(|| seen.into_problems()))
    }
}
