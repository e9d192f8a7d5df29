//! Counters of calls and connections. Counting costs a few additions a call; a scrape of metrics reads all of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orlop_model::{DurationCounts, DurationHistogram};
use tonic::Code;

use crate::status::code_name;

/// All that any service here has, in order. Names that callers make up are counted as one.
const METHODS: &[&str] = include!(concat!(env!("OUT_DIR"), "/methods.in"));
const OTHER: &str = "other";

#[derive(Debug, Default)]
pub struct CallStats {
    ended: Mutex<BTreeMap<(&'static str, &'static str), Arc<DurationHistogram>>>,
    in_flight: AtomicUsize,
    connections: AtomicUsize,
}

/// Of one method, and of those of its calls that ended with this code.
#[derive(Debug, Clone)]
pub struct EndedCalls {
    /// As `csi.v1.Controller/CreateVolume`, or `other`.
    pub method: &'static str,
    pub code: &'static str,
    pub durations: DurationCounts,
}

impl CallStats {
    pub fn ended(&self) -> Vec<EndedCalls> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let all = ended.iter().map(|((method, code), durations)| EndedCalls {
            method,
            code,
            durations: durations.counts(),
        });
        all.collect()
    }

    /// Accepted, and not answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn note_ended(&self, method: &'static str, code: Code, took: Duration) {
        let key = (method, code_name(code));
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let durations = Arc::clone(ended.entry(key).or_default());
        drop(ended);
        durations.note(took);
    }

    pub(crate) fn begin_call(self: &Arc<Self>) -> Counted {
        Counted::one_more(self, |stats| &stats.in_flight)
    }

    pub(crate) fn begin_connection(self: &Arc<Self>) -> Counted {
        Counted::one_more(self, |stats| &stats.connections)
    }
}

/// The name of a method as it is counted, by the path of a request.
pub(crate) fn method_label(path: &str) -> &'static str {
    let name = path.strip_prefix('/').unwrap_or(path);
    METHODS.binary_search(&name).ok().and_then(|at| METHODS.get(at)).unwrap_or(&OTHER)
}

/// Counts until it is dropped.
pub(crate) struct Counted {
    stats: Arc<CallStats>,
    of: fn(&CallStats) -> &AtomicUsize,
}

impl Counted {
    fn one_more(stats: &Arc<CallStats>, of: fn(&CallStats) -> &AtomicUsize) -> Self {
        of(stats).fetch_add(1, Ordering::Relaxed);
        Self { stats: Arc::clone(stats), of }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.of)(&self.stats).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_that_exist_have_a_label() {
        assert!(METHODS.is_sorted(), "or they are not found");
        for method in ["csi.v1.Controller/CreateVolume", "csi.v0.Node/NodeGetId"] {
            assert_eq!(method_label(&format!("/{method}")), method);
        }
        for made_up in ["", "/", "/csi.v1.Controller/Nothing", "/x/\"y", "/csi.v1.Controller"] {
            assert_eq!(method_label(made_up), OTHER);
        }
    }

    #[test]
    fn calls_are_counted_by_method_and_code() {
        let stats = Arc::new(CallStats::default());
        let method = method_label("/csi.v1.Identity/Probe");
        for code in [Code::Ok, Code::Ok, Code::Unavailable] {
            stats.note_ended(method, code, Duration::from_millis(3));
        }
        let counted: Vec<_> =
            stats.ended().into_iter().map(|ended| (ended.code, ended.durations.count)).collect();
        assert_eq!(counted, [("OK", 2), ("UNAVAILABLE", 1)]);
        let call = stats.begin_call();
        assert_eq!((stats.in_flight(), stats.connections()), (1, 0));
        drop(call);
        assert_eq!(stats.in_flight(), 0);
    }
}
