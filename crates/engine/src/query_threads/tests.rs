#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::mpsc::Receiver;
use std::thread::ThreadId;
use std::time::Instant;

use super::*;

/// For what would wait without end if it did not work.
const TIMEOUT: Duration = Duration::from_secs(60);

fn ending_after(idle_timeout: Duration) -> QueryThreads {
    QueryThreads { idle_timeout, ..QueryThreads::default() }
}

/// The thread that answers a query.
fn answering(threads: &QueryThreads) -> ThreadId {
    let (answer, answered) = mpsc::channel();
    threads.run(move || answer.send(thread::current().id()).unwrap()).unwrap();
    answered.recv().unwrap()
}

fn until_idle(threads: &QueryThreads, count: usize) {
    while threads.idle.all().len() != count {
        thread::yield_now();
    }
}

#[test]
fn next_query_uses_the_same_thread() {
    let threads = QueryThreads::default();
    let first = answering(&threads);
    until_idle(&threads, 1);
    assert_eq!(answering(&threads), first);
}

#[test]
fn hung_query_keeps_no_other_waiting() {
    let threads = QueryThreads::default();
    let (resume, hung): (Sender<()>, Receiver<()>) = mpsc::channel();
    threads.run(move || hung.recv().unwrap()).unwrap();
    let other = answering(&threads);
    until_idle(&threads, 1);
    assert_eq!(answering(&threads), other);
    resume.send(()).unwrap();
    until_idle(&threads, 2);
}

#[test]
fn query_that_panics_ends_only_its_thread() {
    let threads = QueryThreads::default();
    let (answer, answered) = mpsc::channel::<()>();
    threads
        .run(move || {
            let _answer = answer;
            panic!("as a faulty pool might");
        })
        .unwrap();
    assert!(answered.recv().is_err());
    answering(&threads);
}

#[test]
fn idle_thread_ends() {
    let threads = ending_after(Duration::ZERO);
    answering(&threads);
    let deadline = Instant::now() + TIMEOUT;
    // A thread has a reference.
    while Arc::strong_count(&threads.idle) > 1 {
        assert!(Instant::now() < deadline, "it stays");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(threads.idle.all().is_empty());
}

#[test]
fn query_of_a_thread_that_is_about_to_end_is_answered() {
    const TIMEOUT: Duration = Duration::from_millis(200);
    let threads = ending_after(TIMEOUT);
    let chosen = loop {
        answering(&threads);
        thread::sleep(Duration::from_millis(10));
        if let Some(chosen) = threads.idle.pop() {
            break chosen;
        }
    };
    // So that it most likely has noticed that it was idle for too long. If not, the test says less, and passes.
    thread::sleep(2 * TIMEOUT);
    let (answer, answered) = mpsc::channel();
    let query = move || answer.send(thread::current().id()).unwrap();
    chosen.queries.send(Box::new(query)).unwrap();
    assert_eq!(answered.recv_timeout(TIMEOUT), Ok(chosen.id));
}
