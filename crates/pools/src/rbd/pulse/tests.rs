#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::mpsc;

use super::*;

/// Longer than anything here takes; whoever waits for so long waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

fn away() -> Error {
    Error::Unreachable { doing: "ask".to_owned(), reason: "nobody is there".to_owned() }
}

fn doing() -> String {
    "make a volume".to_owned()
}

/// Answers what it is told to, each answer once.
struct Heart(Mutex<mpsc::Receiver<Result<()>>>);

impl Beat for Heart {
    fn beat(&self) -> Result<()> {
        self.0.lock().unwrap().recv_timeout(PATIENCE).expect("an answer")
    }
}

struct Bed {
    pulse: Arc<Pulse>,
    answers: mpsc::Sender<Result<()>>,
    _heart: Arc<Heart>,
}

impl Bed {
    fn new() -> Self {
        let (answers, given) = mpsc::channel();
        let heart = Arc::new(Heart(Mutex::new(given)));
        let pulse = Arc::new(Pulse::default());
        pulse.start(&heart).unwrap();
        Self { pulse, answers, _heart: heart }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.pulse.end();
        // For a question that is being asked.
        let _ = self.answers.send(Ok(()));
    }
}

#[test]
fn after_one_call_without_an_answer_others_are_refused_until_there_is_one() {
    let bed = Bed::new();
    assert_eq!(bed.pulse.call(doing, || Ok(1)), Ok(1));
    assert_eq!(bed.pulse.call(doing, || Err::<(), _>(away())), Err(away()));
    let refused = bed.pulse.call(doing, || -> Result<()> { panic!("the cluster is away") });
    let Err(Error::Unreachable { doing: at, reason }) = refused else { panic!("{refused:?}") };
    assert_eq!((at, reason.as_str()), (doing(), "nobody is there"));

    bed.answers.send(Err(away())).unwrap();
    bed.answers.send(Ok(())).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while bed.pulse.call(doing, || Ok(())).is_err() {
        assert!(Instant::now() < deadline, "it is back, and calls are still refused");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_error_is_an_answer_too() {
    let bed = Bed::new();
    let failed = || Err::<(), _>(Error::failed("ask", "no"));
    assert_eq!(bed.pulse.call(doing, failed), failed());
    assert_eq!(bed.pulse.call(doing, || Ok(2)), Ok(2));
}

#[test]
fn a_probe_gets_the_answer_to_its_own_question_or_none() {
    let bed = Bed::new();
    let unanswered = bed.pulse.health();
    assert!(matches!(unanswered, Err(Error::Unreachable { .. })), "{unanswered:?}");
    // That one's answer, which is nobody's any more, and the next one's.
    bed.answers.send(Ok(())).unwrap();
    bed.answers.send(Err(Error::failed("read the mark", "it is another's"))).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match bed.pulse.health() {
            Err(Error::Failed { reason, .. }) => break assert_eq!(reason, "it is another's"),
            // The first answer may have come too late for this question.
            Err(Error::Unreachable { .. }) => assert!(Instant::now() < deadline),
            other => panic!("{other:?}"),
        }
        bed.answers.send(Err(Error::failed("read the mark", "it is another's"))).unwrap();
    }
}

#[test]
fn not_all_places_are_taken_by_calls_that_wait() {
    let bed = Bed::new();
    let waiting: Vec<_> = (0..MOST_WAITING).map(|_| bed.pulse.admit(doing).unwrap()).collect();
    drop(bed.pulse.admit(doing).expect("the cluster has just answered"));
    bed.pulse.state().silent_since -= 2 * SILENCE;
    let refused = bed.pulse.admit(doing).map(drop);
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    drop(waiting);
    drop(bed.pulse.admit(doing).expect("nobody waits any more"));
}

#[test]
fn a_burst_after_a_quiet_time_is_no_silence_of_the_cluster() {
    let bed = Bed::new();
    bed.pulse.state().silent_since -= 2 * SILENCE;
    let burst: Vec<_> = (0..2 * MOST_WAITING).map(|_| bed.pulse.admit(doing)).collect();
    assert!(burst.iter().all(Result::is_ok), "nobody had asked anything");
    bed.pulse.state().silent_since -= 2 * SILENCE;
    assert!(bed.pulse.admit(doing).is_err(), "now all of them wait in vain");
}
