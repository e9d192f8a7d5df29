//! Why the last attempt to stage a volume here failed, for those who ask for its health. In memory alone: after
//! a restart, the orchestrator's next attempt tells it again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_model::{Error, VolumeId};

/// Far more than a node has volumes; beyond it, the oldest is forgotten.
const MAX_FAILURES: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct StageFailures {
    state: Mutex<FailureTable>,
}

#[derive(Debug, Default)]
struct FailureTable {
    by_volume: BTreeMap<VolumeId, StageFailure>,
    /// Failures are counted, so that the oldest is known.
    noted: u64,
}

#[derive(Debug)]
struct StageFailure {
    number: u64,
    error: Error,
}

impl StageFailures {
    fn lock(&self) -> MutexGuard<'_, FailureTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, id: &VolumeId, error: &Error) {
        if !tells_of_volume(error) {
            return;
        }
        let mut state = self.lock();
        state.noted += 1;
        let failure = StageFailure { number: state.noted, error: error.clone() };
        state.by_volume.insert(id.clone(), failure);
        if state.by_volume.len() > MAX_FAILURES {
            let oldest = state.by_volume.iter().min_by_key(|(_, failure)| failure.number);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.map(|id| state.by_volume.remove(&id));
        }
    }

    pub(crate) fn clear(&self, id: &VolumeId) {
        self.lock().by_volume.remove(id);
    }

    pub(crate) fn of(&self, id: &VolumeId) -> Option<Error> {
        self.lock().by_volume.get(id).map(|failure| failure.error.clone())
    }
}

/// Not what is wrong with the request, nor what is over with the next attempt.
fn tells_of_volume(error: &Error) -> bool {
    match error {
        Error::Exhausted(_)
        | Error::Precondition(_)
        | Error::Unauthenticated(_)
        | Error::NotOffered(..)
        | Error::Damaged { .. }
        | Error::Unreachable { .. }
        | Error::Failed { .. } => true,
        Error::Invalid { .. }
        | Error::NoSuchVolume(_)
        | Error::NoSuchSnapshot(_)
        | Error::NoSuchGroupSnapshot(_)
        | Error::NoSuchVolumeGroup(_)
        | Error::NotServed { .. }
        | Error::NoSuchNode(_)
        | Error::NotAtPath { .. }
        | Error::NotOnNode(_)
        | Error::Conflict { .. }
        | Error::Busy { .. }
        | Error::StaleToken
        | Error::OutOfRange(_)
        | Error::Starting
        | Error::Stopping => false,
    }
}

#[cfg(test)]
mod tests;
