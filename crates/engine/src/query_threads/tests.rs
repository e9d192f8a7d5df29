#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::mpsc::Receiver;
use std::thread::ThreadId;

use super::*;

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
