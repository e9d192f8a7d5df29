//! Times of one subject, by operation.

use std::collections::BTreeMap;
use std::time::Instant;

use orlop_tests::Answer;

use crate::results::{Circumstance, Row, Unit};
use crate::series::Series;

#[derive(Default)]
pub(crate) struct Stopwatch {
    times: BTreeMap<&'static str, Series>,
}

impl Stopwatch {
    /// A call that must succeed.
    pub(crate) async fn call<T>(
        &mut self,
        operation: &'static str,
        call: impl Future<Output = Answer<T>>,
    ) -> T {
        let began = Instant::now();
        let answer = call.await;
        self.add(operation, began.elapsed().as_secs_f64());
        answer.unwrap_or_else(|status| panic!("{operation}: {status}"))
    }

    pub(crate) fn run<T>(&mut self, operation: &'static str, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let outcome = work();
        self.add(operation, began.elapsed().as_secs_f64());
        outcome
    }

    /// An operation made of several steps, each of which is timed separately.
    pub(crate) fn steps(&mut self, operation: &'static str) -> Steps<'_> {
        Steps { watch: self, operation, total: 0.0 }
    }

    pub(crate) fn add(&mut self, operation: &'static str, seconds: f64) {
        self.times.entry(operation).or_default().push(seconds);
    }

    pub(crate) fn set(&mut self, operation: &'static str, series: Series) {
        self.times.insert(operation, series);
    }

    pub(crate) fn series(&self, operation: &str) -> Option<Series> {
        self.times.get(operation).cloned()
    }

    /// Of those parts that were timed: a driver that does not stage has only published.
    pub(crate) fn sum(&self, parts: &[&'static str]) -> Option<Series> {
        let timed = parts.iter().filter_map(|part| self.series(part));
        timed.reduce(|sum, part| sum.plus(&part))
    }
}

/// The sum is noted when it ends.
pub(crate) struct Steps<'a> {
    watch: &'a mut Stopwatch,
    operation: &'static str,
    total: f64,
}

impl Steps<'_> {
    pub(crate) fn run<T>(&mut self, step: &'static str, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let outcome = work();
        let seconds = began.elapsed().as_secs_f64();
        self.watch.add(step, seconds);
        self.total += seconds;
        outcome
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.watch.add(self.operation, self.total);
    }
}

/// Times of all three, taken in turns.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) ours: Stopwatch,
    pub(crate) peer: Stopwatch,
    pub(crate) floor: Stopwatch,
}

impl Times {
    pub(crate) fn row(&self, operation: String, parts: &[&'static str], with: Circumstance) -> Row {
        Row {
            operation,
            with,
            unit: Unit::Time,
            ours: self.ours.sum(parts),
            peer: self.peer.sum(parts),
            floor: self.floor.sum(parts),
            note: None,
        }
    }
}
