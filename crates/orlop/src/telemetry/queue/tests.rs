#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn line(text: &str) -> Entry {
    Entry::Line(text.as_bytes().to_owned())
}

fn all(queue: &LogQueue) -> Vec<Entry> {
    std::iter::from_fn(|| queue.try_next()).collect()
}

#[test]
fn lines_leave_in_their_order() {
    let queue = LogQueue::new(100);
    for text in ["one", "two", "three"] {
        queue.push(text.as_bytes());
    }
    assert_eq!(all(&queue), [line("one"), line("two"), line("three")]);
}

#[test]
fn what_finds_no_room_is_counted_where_it_is_missing() {
    let queue = LogQueue::new(10);
    for text in ["12345", "67890", "too much", "x"] {
        queue.push(text.as_bytes());
    }
    assert_eq!(queue.try_next(), Some(line("12345")));
    // There is room for it now, but it would stand before the lines that are missing.
    queue.push(b"y");
    queue.set_reason(b"the reason");
    assert_eq!(queue.try_next(), Some(line("67890")));
    assert_eq!(queue.try_next(), Some(Entry::Dropped(3)));
    assert_eq!(queue.try_next(), Some(line("the reason")));
    queue.push(b"later");
    assert_eq!(all(&queue), [line("later")]);
}

#[test]
fn pushing_does_not_wait_for_the_writer() {
    let queue = LogQueue::new(1000);
    queue.push(b"being written");
    assert_eq!(queue.next(), line("being written"));
    for _ in 0..10_000 {
        queue.push(b"0123456789");
    }
    assert!(!queue.wait_until_written(Duration::from_millis(10)));
    queue.written();
    let left = all(&queue);
    assert_eq!(left.len(), 101);
    assert_eq!(left.last(), Some(&Entry::Dropped(9_900)));
}

#[test]
fn flushing_ends_with_the_last_line() {
    let queue = Arc::new(LogQueue::new(1000));
    assert!(queue.wait_until_written(Duration::ZERO), "nothing is to be written");
    let writer = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            for _ in 0..3 {
                queue.next();
                thread::sleep(Duration::from_millis(20));
                queue.written();
            }
        })
    };
    for _ in 0..3 {
        queue.push(b"line");
    }
    let begun = Instant::now();
    assert!(queue.wait_until_written(LONG));
    assert!(begun.elapsed() >= Duration::from_millis(20), "one was still being written");
    writer.join().unwrap();
}
