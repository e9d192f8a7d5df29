//! Does the cluster answer?
//!
//! A call to a cluster that is away waits until it is given up. One is enough to find that out: from
//! then on calls are refused at once, while a thread of its own asks on and notices when the cluster
//! is back. So calls that can do nothing do not pile up, and other pools of this daemon do not wait
//! behind them. The thread also asks for Probe, which cannot wait.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result};

/// How often is asked while all is well and nobody wants to know.
const RESTING: Duration = Duration::from_secs(30);
/// Between two questions that fail at once; mostly they take as long as an operation may.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a Probe waits: its callers give up soon.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);
/// So many calls may wait at once for a cluster that has been silent for [`SILENCE`]. Others of this
/// daemon, on other pools, need room as well.
const MOST_WAITING: usize = 32;
const SILENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Pulse {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Why calls are refused; set as long as the cluster does not answer.
    away: Option<String>,
    /// Calls that have no answer yet.
    waiting: usize,
    /// The last answer; or, if nobody waited for one then, the first question after it.
    silent_since: Instant,
    /// How often someone wanted to know, and up to which of them there was an answer: the last.
    wanted: u64,
    known: u64,
    health: Result<()>,
    ended: bool,
}

/// Asks the cluster, and takes as long as that takes.
pub(super) trait Beat: Send + Sync + 'static {
    fn beat(&self) -> Result<()>;
}

impl Default for Pulse {
    fn default() -> Self {
        let state = State {
            away: None,
            waiting: 0,
            silent_since: Instant::now(),
            wanted: 0,
            known: 0,
            health: Ok(()),
            ended: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl Pulse {
    /// Ends when what beats is dropped.
    pub(super) fn start<B: Beat>(self: &Arc<Self>, heart: &Arc<B>) -> Result<()> {
        let (pulse, heart) = (Arc::clone(self), Arc::downgrade(heart));
        thread::Builder::new()
            .name("rbd-pulse".to_owned())
            .spawn(move || pulse.watch(&heart))
            .map(drop)
            .map_err(|error| Error::failed("start a thread", error))
    }

    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call, unless the cluster is known to be away.
    pub(super) fn call<T>(
        &self,
        doing: impl Fn() -> String,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _waiting = self.admit(doing)?;
        let answer = call();
        let mut state = self.state();
        match &answer {
            Err(Error::Unreachable { reason, .. }) => self.lose(&mut state, reason),
            Ok(_) | Err(_) => state.silent_since = Instant::now(),
        }
        drop(state);
        answer
    }

    fn admit(&self, doing: impl Fn() -> String) -> Result<Waiting<'_>> {
        let mut state = self.state();
        let crowded = state.waiting >= MOST_WAITING && state.silent_since.elapsed() > SILENCE;
        let reason = match &state.away {
            Some(why) => why.clone(),
            None if crowded => format!("{MOST_WAITING} calls wait for the Ceph cluster already"),
            None => {
                if state.waiting == 0 {
                    state.silent_since = Instant::now();
                }
                state.waiting += 1;
                return Ok(Waiting { pulse: self });
            }
        };
        Err(Error::Unreachable { doing: doing(), reason })
    }

    fn lose(&self, state: &mut State, why: &str) {
        if state.away.is_none() {
            tracing::warn!(
                why,
                "the Ceph cluster does not respond; calls are refused until it does"
            );
            state.away = Some(why.to_owned());
            self.changed.notify_all();
        }
    }

    /// The answer to a question that is asked now.
    pub(super) fn health(&self) -> Result<()> {
        let mut state = self.state();
        state.wanted += 1;
        let ticket = state.wanted;
        self.changed.notify_all();
        let unanswered = |state: &mut State| state.known < ticket;
        let waited = self.changed.wait_timeout_while(state, PROBE_PATIENCE, unanswered);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Error::Unreachable {
                doing: "ask the Ceph cluster whether it is well".to_owned(),
                reason: state.away.clone().unwrap_or_else(|| "it did not answer yet".to_owned()),
            });
        }
        state.health.clone()
    }

    fn watch<B: Beat>(&self, heart: &Weak<B>) {
        while let Some(ticket) = self.next_question() {
            let Some(heart) = heart.upgrade() else { return };
            let health = heart.beat();
            // Perhaps the last one who had it.
            drop(heart);
            self.answer(ticket, health);
        }
    }

    /// Waits until there is a reason to ask. `None`: no more.
    fn next_question(&self) -> Option<u64> {
        let state = self.state();
        let pause = if state.away.is_some() { AFTER_FAILURE } else { RESTING };
        let was_away = state.away.is_some();
        let idle = |state: &mut State| {
            !state.ended && state.known >= state.wanted && state.away.is_some() == was_away
        };
        let waited = self.changed.wait_timeout_while(state, pause, idle);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.ended).then_some(state.wanted)
    }

    fn answer(&self, ticket: u64, health: Result<()>) {
        let mut state = self.state();
        match &health {
            Err(Error::Unreachable { reason, .. }) => self.lose(&mut state, reason),
            Ok(()) | Err(_) => {
                state.silent_since = Instant::now();
                if state.away.take().is_some() {
                    tracing::info!("the Ceph cluster responds again");
                }
            }
        }
        state.known = ticket;
        state.health = health;
        self.changed.notify_all();
    }
}

/// A call that has no answer yet.
struct Waiting<'a> {
    pulse: &'a Pulse,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.pulse.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests;
