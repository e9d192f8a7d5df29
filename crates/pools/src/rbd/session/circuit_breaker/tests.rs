#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::mpsc;

use super::*;

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn unreachable() -> Error {
    Error::unreachable("ask", "no route to it")
}

fn doing() -> String {
    "make a volume".to_owned()
}

/// Gives each answer that was sent to it, once.
struct Cluster(Mutex<mpsc::Receiver<Result<()>>>);

impl Probe for Cluster {
    fn probe(&self) -> Result<()> {
        self.0.lock().unwrap().recv_timeout(TIMEOUT).expect("an answer")
    }
}

struct Fixture {
    breaker: Arc<CircuitBreaker>,
    answers: mpsc::Sender<Result<()>>,
    _cluster: Arc<Cluster>,
}

impl Fixture {
    fn new() -> Self {
        let (answers, given) = mpsc::channel();
        let cluster = Arc::new(Cluster(Mutex::new(given)));
        let breaker = Arc::new(CircuitBreaker::default());
        breaker.start(&cluster).unwrap();
        Self { breaker, answers, _cluster: cluster }
    }

    /// As `Session::ask` does.
    fn call<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let admitted = self.breaker.admit(doing)?;
        let answer = call();
        admitted.report(&answer);
        answer
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.breaker.end();
        // For a probe that waits.
        let _ = self.answers.send(Ok(()));
    }
}

#[test]
fn calls_are_refused_until_the_next_answer() {
    let fixture = Fixture::new();
    assert_eq!(fixture.call(|| Ok(1)), Ok(1));
    assert_eq!(fixture.call(|| Err::<(), _>(unreachable())), Err(unreachable()));
    let refused = fixture.call(|| -> Result<()> { panic!("the breaker is open") });
    let Err(Error::Unreachable { doing: at, reason }) = refused else { panic!("{refused:?}") };
    assert_eq!((at, reason.as_str()), (doing(), "no route to it"));

    fixture.answers.send(Err(unreachable())).unwrap();
    fixture.answers.send(Ok(())).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while fixture.call(|| Ok(())).is_err() {
        assert!(Instant::now() < deadline, "it answers, and calls are still refused");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn error_counts_as_an_answer() {
    let fixture = Fixture::new();
    let failed = || Err::<(), _>(Error::failed("ask", "no"));
    assert_eq!(fixture.call(failed), failed());
    assert_eq!(fixture.call(|| Ok(2)), Ok(2));
}

#[test]
fn health_needs_a_current_probe() {
    let fixture = Fixture::new();
    let unanswered = fixture.breaker.health();
    assert!(matches!(unanswered, Err(Error::Unreachable { .. })), "{unanswered:?}");
    // The answer to the probe that has timed out, and to the next one.
    fixture.answers.send(Ok(())).unwrap();
    fixture.answers.send(Err(Error::failed("read the mark", "it is another's"))).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match fixture.breaker.health() {
            Err(Error::Failed { reason, .. }) => {
                break assert_eq!(reason.as_str(), "it is another's");
            }
            // The first answer may have come too late for this probe.
            Err(Error::Unreachable { .. }) => assert!(Instant::now() < deadline),
            other => panic!("{other:?}"),
        }
        fixture.answers.send(Err(Error::failed("read the mark", "it is another's"))).unwrap();
    }
}

#[test]
fn waiting_calls_are_limited_while_the_cluster_hangs() {
    let fixture = Fixture::new();
    let waiting: Vec<_> = (0..MAX_WAITING).map(|_| fixture.breaker.admit(doing).unwrap()).collect();
    drop(fixture.breaker.admit(doing).expect("the cluster has just answered"));
    fixture.breaker.state().silent_since -= 2 * SILENCE_LIMIT;
    let refused = fixture.breaker.admit(doing).map(drop);
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    drop(waiting);
    drop(fixture.breaker.admit(doing).expect("no call waits any more"));
}

#[test]
fn burst_after_idle_time_does_not_open_the_breaker() {
    let fixture = Fixture::new();
    fixture.breaker.state().silent_since -= 2 * SILENCE_LIMIT;
    let burst: Vec<_> = (0..2 * MAX_WAITING).map(|_| fixture.breaker.admit(doing)).collect();
    assert!(burst.iter().all(Result::is_ok), "no call had waited");
    fixture.breaker.state().silent_since -= 2 * SILENCE_LIMIT;
    assert!(fixture.breaker.admit(doing).is_err(), "now all of them wait in vain");
}
