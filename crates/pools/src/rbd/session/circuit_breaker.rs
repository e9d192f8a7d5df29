//! Does the cluster answer?
//!
//! A call to a cluster that does not answer waits until its time is up. One such call is enough to
//! find that out: from then on calls are refused at once, while a thread probes the cluster and
//! notices when it answers again. So calls that can do nothing do not pile up, and other pools of
//! this daemon do not wait behind them. CSI's Probe, which cannot wait, gets its answer from that
//! thread too.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Reason, Result};

/// Between two probes while the cluster answers and no call asks for its health.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// Between two probes that fail at once; mostly they take as long as an operation may.
const FAILED_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How long [`CircuitBreaker::health`] waits: orchestrators give up a Probe soon.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);
/// How many calls may wait at once for a cluster that has been silent for [`SILENCE_LIMIT`]. Calls on other
/// pools of this daemon need threads as well.
const MAX_WAITING: usize = 32;
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// Open while the cluster does not answer: then calls are refused at once.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    state: Mutex<CircuitState>,
    changed: Condvar,
}

#[derive(Debug)]
struct CircuitState {
    /// Why calls are refused; set as long as the cluster does not answer.
    open: Option<String>,
    /// Calls that have no answer yet.
    waiting: usize,
    /// The last answer; or, if no call waited for one then, the first call after it.
    silent_since: Instant,
    /// How many asked for the health, and up to which of them it is known.
    wanted: u64,
    known: u64,
    health: Result<()>,
    ended: bool,
}

/// Asks the cluster, and takes as long as that takes.
pub(in super::super) trait Probe: Send + Sync + 'static {
    fn probe(&self) -> Result<()>;
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        let state = CircuitState {
            open: None,
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

impl CircuitBreaker {
    /// Ends when the probe is dropped.
    pub(super) fn start<P: Probe>(self: &Arc<Self>, probe: &Arc<P>) -> Result<()> {
        let (breaker, probe) = (Arc::clone(self), Arc::downgrade(probe));
        thread::Builder::new()
            .name("rbd-probe".to_owned())
            .spawn(move || breaker.watch(&probe))
            .map(drop)
            .map_err(|error| Error::failed("start a thread", Reason::of(error)))
    }

    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, CircuitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call, unless the cluster is known not to answer.
    pub(super) fn admit(&self, doing: impl Fn() -> String) -> Result<Admitted<'_>> {
        let mut state = self.state();
        let crowded = state.waiting >= MAX_WAITING && state.silent_since.elapsed() > SILENCE_LIMIT;
        let reason = match &state.open {
            Some(why) => why.clone(),
            None if crowded => format!(
                "{MAX_WAITING} calls are waiting for the Ceph cluster already; check that it is up"
            ),
            None => {
                if state.waiting == 0 {
                    state.silent_since = Instant::now();
                }
                state.waiting += 1;
                return Ok(Admitted { breaker: self });
            }
        };
        Err(Error::unreachable(doing(), reason))
    }

    fn trip(&self, state: &mut CircuitState, why: &str) {
        if state.open.is_none() {
            tracing::warn!(
                why,
                "the Ceph cluster does not respond; calls are refused until it does"
            );
            state.open = Some(why.to_owned());
            self.changed.notify_all();
        }
    }

    /// The answer to a probe that is made now.
    pub(super) fn health(&self) -> Result<()> {
        let mut state = self.state();
        state.wanted += 1;
        let ticket = state.wanted;
        self.changed.notify_all();
        let unanswered = |state: &mut CircuitState| state.known < ticket;
        let waited = self.changed.wait_timeout_while(state, HEALTH_TIMEOUT, unanswered);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let reason = state.open.clone().unwrap_or_else(|| "it has not answered yet".to_owned());
            return Err(Error::unreachable("check the health of the Ceph cluster", reason));
        }
        state.health.clone()
    }

    fn watch<P: Probe>(&self, probe: &Weak<P>) {
        while let Some(ticket) = self.next_probe() {
            let Some(probe) = probe.upgrade() else { return };
            let health = probe.probe();
            // This may be its last owner.
            drop(probe);
            self.answer(ticket, health);
        }
    }

    /// Waits until there is a reason to probe. `None`: no more.
    fn next_probe(&self) -> Option<u64> {
        let state = self.state();
        let pause = if state.open.is_some() { FAILED_PROBE_INTERVAL } else { IDLE_PROBE_INTERVAL };
        let was_open = state.open.is_some();
        let idle = |state: &mut CircuitState| {
            !state.ended && state.known >= state.wanted && state.open.is_some() == was_open
        };
        let waited = self.changed.wait_timeout_while(state, pause, idle);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.ended).then_some(state.wanted)
    }

    fn answer(&self, ticket: u64, health: Result<()>) {
        let mut state = self.state();
        match &health {
            Err(Error::Unreachable { reason, .. }) => self.trip(&mut state, reason.as_str()),
            Ok(()) | Err(_) => {
                state.silent_since = Instant::now();
                if state.open.take().is_some() {
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
#[derive(Debug)]
pub(super) struct Admitted<'a> {
    breaker: &'a CircuitBreaker,
}

impl Admitted<'_> {
    /// An error is an answer too, unless it says that there was none.
    pub(super) fn report<T>(self, answer: &Result<T>) {
        let mut state = self.breaker.state();
        match answer {
            Err(Error::Unreachable { reason, .. }) => {
                self.breaker.trip(&mut state, reason.as_str())
            }
            Ok(_) | Err(_) => state.silent_since = Instant::now(),
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.breaker.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests;
