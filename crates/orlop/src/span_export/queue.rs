//! The queue of spans for the collector, and how many were dropped because it was full.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::messages::Span;

/// The spans of some minutes on a busy node: a few megabytes.
const MAX_SPANS: usize = 4096;
const BATCH: usize = 256;
/// Spans are sent after this time even if they do not fill a batch.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);

pub(super) static QUEUE: SpanQueue = SpanQueue::new();

pub(super) struct SpanQueue {
    spans: Mutex<Vec<Span>>,
    is_open: AtomicBool,
    dropped: AtomicU64,
    is_full_enough: Notify,
}

impl SpanQueue {
    const fn new() -> Self {
        Self {
            spans: Mutex::new(Vec::new()),
            is_open: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            is_full_enough: Notify::const_new(),
        }
    }

    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Never waits for the collector.
    pub(super) fn push(&self, span: Span) {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() >= MAX_SPANS {
            self.note_dropped(1);
            return;
        }
        spans.push(span);
        if spans.len() >= BATCH {
            self.is_full_enough.notify_one();
        }
    }

    /// Returns when there is a batch, and every second.
    pub(super) async fn filled(&self) {
        let _ = tokio::time::timeout(EXPORT_INTERVAL, self.is_full_enough.notified()).await;
    }

    /// The oldest ones; `None`: there are none.
    pub(super) fn take_batch(&self) -> Option<Vec<Span>> {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let count = spans.len().min(BATCH);
        (count > 0).then(|| spans.drain(..count).collect())
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
}
