//! Counts over all tests of this run.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use orlop_tests::report;

#[derive(Default)]
struct Tally {
    points: BTreeSet<String>,
    operations: BTreeSet<&'static str>,
    restarts: usize,
    lost: usize,
    leaked: usize,
}

static TALLY: LazyLock<Mutex<Tally>> = LazyLock::new(Mutex::default);

fn tally() -> MutexGuard<'static, Tally> {
    TALLY.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn ended_at(place: &str) {
    let mut tally = tally();
    tally.restarts += 1;
    tally.points.insert(place.to_owned());
}

pub(crate) fn leaked() {
    tally().leaked += 1;
}

/// An operation under test. If it is dropped by a panic, something was lost.
pub(crate) struct TalliedOperation(&'static str);

impl TalliedOperation {
    pub(crate) fn begin(operation: &'static str) -> Self {
        Self(operation)
    }
}

impl Drop for TalliedOperation {
    fn drop(&mut self) {
        let mut tally = tally();
        if std::thread::panicking() {
            tally.lost += 1;
        } else {
            tally.operations.insert(self.0);
        }
    }
}

/// The last of these lines is the sum of all; scripts/suites shows it.
pub(crate) fn show() {
    let Tally { points, operations, restarts, lost, leaked } = &*tally();
    let (points, operations) = (points.len(), operations.len());
    report(&format!(
        "crash: {points} points, {operations} operations, {restarts} restarts, \
         {lost} lost, {leaked} leaked"
    ));
}
