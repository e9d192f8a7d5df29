//! The I/O of volumes in the last minutes, for the graphs in the list. The kernel only counts, so its counters are read
//! at intervals.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orlop_engine::{Engine, VolumeIo};
use orlop_model::{DeviceIo, VolumeId};
use serde::Serialize;

pub(super) const STEP: Duration = Duration::from_secs(10);
/// Ten minutes.
const STEPS: usize = 60;
/// As many volumes as a node is meant to have.
const MAX_VOLUMES: usize = 1000;

/// Of each volume that is staged here.
#[derive(Default)]
pub(super) struct History(Mutex<BTreeMap<VolumeId, Series>>);

struct Series {
    last: DeviceIo,
    at: Instant,
    rates: VecDeque<Rates>,
}

/// Per second, averaged over one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Rates {
    read_bytes: u64,
    written_bytes: u64,
    reads: u64,
    writes: u64,
}

/// The oldest first.
#[derive(Debug, Default, Serialize, PartialEq, Eq)]
pub(super) struct IoView {
    step_seconds: u64,
    read_bytes: Vec<u64>,
    written_bytes: Vec<u64>,
    reads: Vec<u64>,
    writes: Vec<u64>,
}

impl History {
    fn all(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Series>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sample(&self, engine: &Engine) {
        match engine.volume_io(MAX_VOLUMES) {
            Ok(found) => self.add_sample(found.volumes, Instant::now()),
            Err(error) => tracing::debug!(%error, "cannot list the volumes that are staged here"),
        }
    }

    /// Drops the history of volumes that are no longer staged.
    fn add_sample(&self, found: Vec<VolumeIo>, now: Instant) {
        let mut all = self.all();
        let mut before = std::mem::take(&mut *all);
        for VolumeIo { id, io, .. } in found {
            let series = match before.remove(&id) {
                Some(mut series) => {
                    series.push(io, now);
                    series
                }
                None => Series { last: io, at: now, rates: VecDeque::new() },
            };
            all.insert(id, series);
        }
    }

    /// `None`: it is not staged here, or has not been sampled yet.
    pub(super) fn of(&self, id: &VolumeId) -> Option<IoView> {
        self.all().get(id).map(|series| {
            let each = |of: fn(&Rates) -> u64| series.rates.iter().map(of).collect();
            IoView {
                step_seconds: STEP.as_secs(),
                read_bytes: each(|it| it.read_bytes),
                written_bytes: each(|it| it.written_bytes),
                reads: each(|it| it.reads),
                writes: each(|it| it.writes),
            }
        })
    }
}

impl Series {
    fn push(&mut self, io: DeviceIo, now: Instant) {
        let elapsed_ms = u64::try_from(now.duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        // The counters of a device that was attached again begin at 0.
        let per_second = |now: u64, before: u64| {
            now.saturating_sub(before).saturating_mul(1000) / elapsed_ms.max(1)
        };
        let last = std::mem::replace(&mut self.last, io);
        self.at = now;
        if self.rates.len() >= STEPS {
            self.rates.pop_front();
        }
        self.rates.push_back(Rates {
            read_bytes: per_second(io.bytes_read, last.bytes_read),
            written_bytes: per_second(io.bytes_written, last.bytes_written),
            reads: per_second(io.reads, last.reads),
            writes: per_second(io.writes, last.writes),
        });
    }
}

#[cfg(test)]
mod tests {
    use orlop_model::{NameDigest, PoolId};

    use super::*;

    fn volume_io(name: &str, bytes_written: u64) -> VolumeIo {
        let name: orlop_model::ObjectName = name.parse().unwrap();
        let id = VolumeId::new(PoolId::from_random([1; 4]), NameDigest::of(&name));
        let io = DeviceIo { bytes_written, writes: bytes_written / 4096, ..DeviceIo::default() };
        VolumeIo { id, name, pool: "p".to_owned(), io, limits: Default::default() }
    }

    #[test]
    fn rates_are_by_second_and_survive_a_new_device() {
        let history = History::default();
        let begin = Instant::now();
        let id = volume_io("a", 0).id;
        assert_eq!(history.of(&id), None);
        for (step, written) in
            [(0, 0), (1, 40_960_000), (2, 40_960_000), (3, 4096), (4, 81_924_096)]
        {
            history.add_sample(vec![volume_io("a", written)], begin + STEP * step);
        }
        let view = history.of(&id).unwrap();
        assert_eq!(view.written_bytes, [4_096_000, 0, 0, 8_192_000]);
        assert_eq!(view.writes, [1000, 0, 0, 2000]);
        assert_eq!(view.reads, [0; 4]);
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let history = History::default();
        let begin = Instant::now();
        for step in 0..200 {
            history.add_sample(vec![volume_io("a", 0), volume_io("b", 0)], begin + STEP * step);
        }
        assert_eq!(history.of(&volume_io("b", 0).id).unwrap().reads.len(), STEPS);
        history.add_sample(vec![volume_io("a", 0)], begin + STEP * 200);
        assert_eq!(history.of(&volume_io("b", 0).id), None);
        assert_eq!(history.all().len(), 1);
    }
}
