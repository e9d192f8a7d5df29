//! The queue of spans for the collector, and how many were dropped because it was full.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message;
use tokio::sync::Notify;

use super::messages::Span;

/// The spans of some minutes on a busy node: a few megabytes.
const MAX_SPANS: usize = 4096;
/// The lines of a call are in its span, and may quote much of what other programs printed.
const MAX_BYTES: usize = 16 << 20;
const BATCH: usize = 256;
/// A collector takes 4 MiB in one message.
const BATCH_BYTES: usize = 2 << 20;
/// Spans are sent after this time even if they do not fill a batch.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);

pub(super) static QUEUE: SpanQueue = SpanQueue::new();

pub(super) struct SpanQueue {
    waiting: Mutex<Waiting>,
    is_open: AtomicBool,
    dropped: AtomicU64,
    is_full_enough: Notify,
}

struct Waiting {
    /// Each with its length in a message.
    spans: VecDeque<(Span, usize)>,
    bytes: usize,
}

impl SpanQueue {
    const fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting { spans: VecDeque::new(), bytes: 0 }),
            is_open: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            is_full_enough: Notify::const_new(),
        }
    }

    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// What is in it is still to be sent.
    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
        self.is_full_enough.notify_one();
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits for the collector.
    pub(super) fn push(&self, span: Span) {
        let length = span.encoded_len();
        let mut waiting = self.waiting();
        if waiting.spans.len() >= MAX_SPANS || waiting.bytes + length > MAX_BYTES {
            self.note_dropped(1);
            return;
        }
        waiting.bytes += length;
        waiting.spans.push_back((span, length));
        if waiting.spans.len() >= BATCH || waiting.bytes >= BATCH_BYTES {
            self.is_full_enough.notify_one();
        }
    }

    /// Returns when there is a batch, and every second.
    pub(super) async fn filled(&self) {
        let _ = tokio::time::timeout(EXPORT_INTERVAL, self.is_full_enough.notified()).await;
    }

    /// The oldest ones; `None`: there are none.
    pub(super) fn take_batch(&self) -> Option<Vec<Span>> {
        let mut waiting = self.waiting();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH
            && let Some((_, length)) = waiting.spans.front()
            && (batch.is_empty() || bytes + length <= BATCH_BYTES)
        {
            bytes += length;
            batch.extend(waiting.spans.pop_front().map(|(span, _)| span));
        }
        waiting.bytes -= bytes;
        (!batch.is_empty()).then_some(batch)
    }

    pub(super) fn note_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_beyond_the_limit_are_dropped_and_counted() {
        let queue = SpanQueue::new();
        for _ in 0..MAX_SPANS + 7 {
            queue.push(Span::default());
        }
        assert_eq!(queue.dropped(), 7);
        let mut taken = 0;
        while let Some(batch) = queue.take_batch() {
            assert!(batch.len() <= BATCH);
            taken += batch.len();
        }
        assert_eq!(taken, MAX_SPANS);
        queue.push(Span::default());
        assert_eq!(queue.dropped(), 7, "there is room again");
    }

    #[test]
    fn long_spans_take_no_more_memory_than_short_ones() {
        let queue = SpanQueue::new();
        let long = Span { name: "x".repeat(1 << 20), ..Span::default() };
        for _ in 0..100 {
            queue.push(long.clone());
        }
        assert_eq!(queue.dropped(), 85, "15 and what is around their names fit into 16 MiB");
        let mut taken = 0;
        while let Some(batch) = queue.take_batch() {
            assert_eq!(batch.len(), 1, "two of them are more than a message may have");
            taken += 1;
        }
        assert_eq!(taken, 15);
        assert_eq!(queue.waiting().bytes, 0);
        let longest = Span { name: "x".repeat(BATCH_BYTES + 1), ..Span::default() };
        queue.push(longest);
        assert!(queue.take_batch().is_some(), "it is no reason to send nothing any more");
    }
}
