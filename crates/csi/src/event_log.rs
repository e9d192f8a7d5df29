//! The last few thousand events of this process, in memory, for `orlop events`.
//!
//! Readers get shared pointers to the events, so that the lock is held only for a moment.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

const MAX_EVENTS: usize = 4096;
/// The limit for all texts of the events together.
const MAX_BYTES: usize = 2 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Assigned by the log, beginning with 1.
    pub sequence: u64,
    pub time: SystemTime,
    pub level: &'static str,
    pub kind: &'static str,
    pub message: String,
    pub fields: BTreeMap<String, String>,
}

impl Event {
    fn bytes(&self) -> usize {
        let fields = self.fields.iter().map(|(key, value)| key.len() + value.len());
        size_of::<Self>() + self.message.len() + fields.sum::<usize>()
    }
}

#[derive(Debug)]
pub struct EventLog {
    /// Random for each process: sequence numbers of an earlier process are not valid in this one.
    instance: String,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    last: u64,
}

/// Some of the events, the oldest first.
#[derive(Debug)]
pub struct EventPage {
    pub events: Vec<Arc<Event>>,
    /// How many events before these were dropped.
    pub forgotten: u64,
    pub more: bool,
}

impl Default for EventLog {
    fn default() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let instance = format!("{:x}-{:x}", std::process::id(), started.as_nanos());
        Self { instance, kept: Mutex::default() }
    }
}

impl EventLog {
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Drops the oldest events if the log is full.
    pub fn push(&self, event: Event) {
        let mut kept = self.kept();
        kept.last += 1;
        let event = Event { sequence: kept.last, ..event };
        kept.bytes += event.bytes();
        kept.events.push_back(Arc::new(event));
        while kept.events.len() > MAX_EVENTS || kept.bytes > MAX_BYTES {
            let Some(oldest) = kept.events.pop_front() else { return };
            kept.bytes = kept.bytes.saturating_sub(oldest.bytes());
        }
    }

    pub fn after(&self, sequence: u64, most: usize) -> EventPage {
        let kept = self.kept();
        let oldest = kept.events.front().map_or(kept.last + 1, |event| event.sequence);
        let first = kept.events.partition_point(|event| event.sequence <= sequence);
        let events: Vec<_> = kept.events.range(first..).take(most).cloned().collect();
        EventPage {
            forgotten: oldest.saturating_sub(sequence.saturating_add(1)),
            more: kept.events.len() - first > events.len(),
            events,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str) -> Event {
        Event {
            sequence: 0,
            time: UNIX_EPOCH,
            level: "info",
            kind: "call",
            message: message.to_owned(),
            fields: BTreeMap::new(),
        }
    }

    fn sequences(page: &EventPage) -> Vec<u64> {
        page.events.iter().map(|event| event.sequence).collect()
    }

    #[test]
    fn events_are_read_in_pages_from_any_point() {
        let log = EventLog::default();
        assert!(log.after(0, 10).events.is_empty());
        for _ in 0..5 {
            log.push(event("x"));
        }
        let page = log.after(0, 3);
        assert_eq!((sequences(&page), page.more, page.forgotten), (vec![1, 2, 3], true, 0));
        let page = log.after(3, 3);
        assert_eq!((sequences(&page), page.more, page.forgotten), (vec![4, 5], false, 0));
        // A number that was never given.
        let page = log.after(u64::MAX, 3);
        assert_eq!((sequences(&page), page.more, page.forgotten), (vec![], false, 0));
    }

    #[test]
    fn only_the_newest_are_kept() {
        let log = EventLog::default();
        for _ in 0..MAX_EVENTS + 10 {
            log.push(event("x"));
        }
        let page = log.after(4, 1);
        assert_eq!((sequences(&page), page.forgotten, page.more), (vec![11], 6, true));
        let long = "x".repeat(MAX_BYTES / 4);
        for _ in 0..20 {
            log.push(event(&long));
        }
        let bytes: usize = log.kept().events.iter().map(|event| event.bytes()).sum();
        assert!(bytes <= MAX_BYTES && bytes == log.kept().bytes, "{bytes}");
        assert_eq!(log.after(0, MAX_EVENTS).events.len(), 3);
        // One that is too large alone leaves nothing, and the count goes on.
        log.push(event(&"x".repeat(MAX_BYTES)));
        log.push(event("x"));
        assert_eq!(log.after(0, 9).events.len(), 1);
        let last = log.kept().last;
        assert_eq!(log.after(0, 9).events[0].sequence, last);
    }

    #[test]
    fn a_later_log_has_another_instance() {
        let one = EventLog::default();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_ne!(one.instance(), EventLog::default().instance());
    }
}
