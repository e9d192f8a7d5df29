//! Does a pool answer?
//!
//! A call to a pool whose disk hangs waits in the kernel and cannot be called off. So others must not
//! be sent after it: a pool is asked to write a little, by a thread of its own, when calls on it take
//! long, and now and then when there are none; while that does not return, calls are refused. A pool
//! that notices this itself, such as one that nodes share, has no probe and is not watched here.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, PoolId, Result, StorageProbe};

use crate::engine::{Engine, PoolRef};

/// A call that runs for so long is a reason to ask.
const SUSPICION: Duration = Duration::from_secs(5);
/// How often a pool is asked on which nothing takes long: the first call after a quiet night must not
/// be the one that finds out. The same as a Ceph cluster is.
const RESTING: Duration = Duration::from_secs(30);
/// How long the pool may take to answer. A disk that is busy with the copies of others may well take
/// seconds for one write.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long is waited for the answer to a question that changes nothing, and for a place to ask it.
const QUESTION: Duration = Duration::from_secs(5);
/// Questions at once.
const QUESTIONS: usize = 16;
/// Calls at once that came for another pool, or for none, and keep a place that is not this pool's.
const GUESTS: usize = 16;

pub(crate) struct Vitals {
    pool: PoolRef,
    state: Mutex<State>,
    left: Condvar,
}

struct State {
    /// Since when calls are under way, in the order in which they began.
    under_way: BTreeMap<u64, Instant>,
    begun: u64,
    /// When it was asked what it has not answered yet.
    asked: Option<Instant>,
    answered: Instant,
    is_silent: bool,
    questions: usize,
    guests: usize,
    /// Whose places guests keep meanwhile, where it is a pool's.
    homes: Vec<PoolId>,
}

impl State {
    fn is_slow(&self) -> bool {
        let oldest = self.under_way.values().next();
        let is_slow = oldest.is_some_and(|since| since.elapsed() >= SUSPICION);
        is_slow && self.answered.elapsed() >= SUSPICION
    }
}

/// A call that the pool has not finished.
pub struct UnderWay {
    vitals: Arc<Vitals>,
    number: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.vitals.state().under_way.remove(&self.number);
    }
}

/// One of [`GUESTS`] or of [`QUESTIONS`].
pub(crate) struct Place {
    vitals: Arc<Vitals>,
    of: fn(&mut State) -> &mut usize,
    home: Option<PoolId>,
    _under_way: UnderWay,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.vitals.state();
        *(self.of)(&mut state) -= 1;
        let home = state.homes.iter().position(|home| Some(home) == self.home.as_ref());
        if let Some(index) = home {
            state.homes.swap_remove(index);
        }
        drop(state);
        // Some wait for another kind of place, and would sleep on with the only notice.
        self.vitals.left.notify_all();
    }
}

impl Vitals {
    pub(crate) fn of(pool: PoolRef) -> Self {
        let state = State {
            under_way: BTreeMap::new(),
            begun: 0,
            asked: None,
            answered: Instant::now(),
            is_silent: false,
            questions: 0,
            guests: 0,
            homes: Vec::new(),
        };
        Self { pool, state: Mutex::new(state), left: Condvar::new() }
    }

    fn is_watched(&self) -> bool {
        self.pool.health().storage_probe().is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>) -> UnderWay {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.under_way.insert(number, Instant::now());
        UnderWay { vitals: Arc::clone(self), number }
    }

    /// At once. Whoever asks again and again learns it as soon as it is known.
    fn check(self: &Arc<Self>) -> Result<()> {
        self.look(State::is_slow)
    }

    /// As [`Self::check`], of a pool that may have had no call for long.
    fn watch(self: &Arc<Self>) -> Result<()> {
        self.look(|state| state.is_slow() || state.answered.elapsed() >= RESTING)
    }

    fn look(self: &Arc<Self>, is_due: impl FnOnce(&State) -> bool) -> Result<()> {
        if !self.is_watched() {
            return Ok(());
        }
        let mut state = self.state();
        match state.asked {
            Some(since) if since.elapsed() >= PATIENCE => {
                let silence = self.silence();
                if !state.is_silent {
                    state.is_silent = true;
                    let calls = state.under_way.len();
                    tracing::warn!(pool = self.pool.name(), calls, "{silence}");
                }
                return Err(silence);
            }
            Some(_) => {}
            None => {
                if is_due(&state) && self.ask_to_write() {
                    state.asked = Some(Instant::now());
                }
            }
        }
        Ok(())
    }

    /// The same text for as long as it lasts: it is logged when it changes.
    fn silence(&self) -> Error {
        Error::Unreachable {
            doing: format!("use pool {}", self.pool.name()),
            reason: "its storage does not answer; calls that need it are refused until it does; \
                     look for a frozen filesystem or a broken disk in the kernel log"
                .to_owned(),
        }
    }

    fn is_asked(&self) -> bool {
        let state = self.state();
        state.asked.is_some_and(|since| since.elapsed() < PATIENCE)
    }

    /// A pool that answers and has much to do.
    fn crowd(&self, most: usize) -> Error {
        Error::Unreachable {
            doing: format!("use pool {}", self.pool.name()),
            reason: format!(
                "{most} calls of this kind are under way on it, which is the most at once; try again"
            ),
        }
    }

    fn ask_to_write(self: &Arc<Self>) -> bool {
        let vitals = Arc::clone(self);
        let ask = move || {
            // An error is an answer, and whoever uses the pool gets it too.
            let probe = vitals.pool.health().storage_probe();
            if let Some(Err(error)) = probe.map(StorageProbe::try_storage) {
                tracing::debug!(pool = vitals.pool.name(), %error, "the pool answers");
            }
            let mut state = vitals.state();
            state.asked = None;
            state.answered = Instant::now();
            if std::mem::take(&mut state.is_silent) {
                tracing::info!(pool = vitals.pool.name(), "the pool responds again");
            }
        };
        spawned("pool-answers", ask)
    }

    /// Asks the pool something that changes nothing and is quick; waits for the answer only so long.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&PoolRef) -> T + Send + 'static,
    ) -> Result<T> {
        if !self.is_watched() {
            return Ok(question(&self.pool));
        }
        self.check()?;
        let place = self.place(QUESTIONS, QUESTION, |state| &mut state.questions)?;
        let (answer, answered) = mpsc::sync_channel(1);
        let asking = move || {
            let answer_now = question(&place.vitals.pool);
            drop(place);
            // Whoever asked may have given up.
            let _ = answer.send(answer_now);
        };
        if !spawned("pool-question", asking) {
            let asking = format!("ask pool {}", self.pool.name());
            return Err(Error::failed(asking, "no thread can be started"));
        }
        answered.recv_timeout(QUESTION).map_err(|reason| match reason {
            RecvTimeoutError::Timeout => self.silence(),
            RecvTimeoutError::Disconnected => {
                Error::failed(format!("ask pool {}", self.pool.name()), "it ended unexpectedly")
            }
        })
    }

    fn place(
        self: &Arc<Self>,
        most: usize,
        patience: Duration,
        of: fn(&mut State) -> &mut usize,
    ) -> Result<Place> {
        let taken = |state: &mut State| *of(state) >= most;
        let waited = self.left.wait_timeout_while(self.state(), patience, taken);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            drop(state);
            self.check()?;
            return Err(self.crowd(most));
        }
        *of(&mut state) += 1;
        drop(state);
        Ok(Place { vitals: Arc::clone(self), of, home: None, _under_way: self.begin() })
    }
}

fn spawned(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    match thread::Builder::new().name(name.to_owned()).spawn(work) {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "cannot start a thread to watch a pool");
            false
        }
    }
}

impl Engine {
    pub fn serves(&self, pool: &PoolId) -> bool {
        self.pools.contains_key(pool)
    }

    /// Is there no reason to believe that calls to the pool would wait without end? At once.
    pub fn check_answers(&self, pool: &PoolId) -> Result<()> {
        self.vitals.get(pool).map_or(Ok(()), Vitals::check)
    }

    /// To be called every second or so: a pool that does not answer is noticed without a call.
    pub fn watch_pools(&self) {
        for vitals in self.vitals.values() {
            // Every later call on the pool gets the error too.
            let _noted = vitals.watch();
        }
    }

    /// Has a pool been asked whether it answers, and may it still? It is in use for as long.
    pub fn is_asking(&self) -> bool {
        self.vitals.values().any(|vitals| vitals.is_asked())
    }

    /// Those for which calls that are under way need not be waited for.
    pub fn silent_pools(&self) -> Vec<PoolId> {
        let silent = self.vitals.iter().filter(|(_, vitals)| vitals.check().is_err());
        silent.map(|(id, _)| id.clone()).collect()
    }

    /// To be held as long as a call to the pool lasts.
    pub fn under_way(&self, pool: &PoolId) -> Option<UnderWay> {
        self.vitals.get(pool).map(Vitals::begin)
    }

    /// How many calls keep a place of this pool and wait for another one that does not answer.
    pub fn calls_lost_elsewhere(&self, home: &PoolId) -> usize {
        let silent = self.vitals.values().filter(|vitals| vitals.check().is_err());
        let lost = |vitals: &Arc<Vitals>| {
            vitals.state().homes.iter().filter(|other| *other == home).count()
        };
        silent.map(lost).sum()
    }

    /// For a call that found out only now that it is for this pool. `home` is the pool whose place
    /// it keeps, if any.
    pub(crate) fn as_guest(&self, pool: &PoolRef, home: Option<&PoolId>) -> Result<Option<Place>> {
        let Some(vitals) = self.vitals.get(pool.id()).filter(|it| it.is_watched()) else {
            return Ok(None);
        };
        vitals.check()?;
        let mut place = vitals.place(GUESTS, QUESTION, |state| &mut state.guests)?;
        vitals.state().homes.extend(home.cloned());
        place.home = home.cloned();
        Ok(Some(place))
    }

    pub(crate) fn ask<T: Send + 'static>(
        &self,
        pool: &PoolRef,
        question: impl FnOnce(&PoolRef) -> T + Send + 'static,
    ) -> Result<T> {
        match self.vitals.get(pool.id()) {
            Some(vitals) => vitals.ask(question),
            None => Ok(question(pool)),
        }
    }
}

#[cfg(test)]
mod tests;
