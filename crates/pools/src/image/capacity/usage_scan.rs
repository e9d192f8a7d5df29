//! How much the pool's files take, scanned now and then.
//!
//! It costs a stat for each of them. So nothing that makes or deletes one waits for it: what the last scan
//! found serves until a thread has scanned again. Only a refusal has to be sure, and is preceded by a scan.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use orlop_model::Result;

use super::ImageCapacity;
use super::ledger::Ledger;
use crate::image::catalogue::{ObjectIndex, StoredRecord};
use crate::poison::lock;

/// Clears the mark of a scan that is under way even if the scan panics: otherwise there would be no
/// further one.
struct ScanUnderWay {
    capacity: Arc<ImageCapacity>,
}

impl Drop for ScanUnderWay {
    fn drop(&mut self) {
        lock(&self.capacity.ledger).scan().end();
    }
}

/// The thread that scans, if there is one; waited for before the pool goes.
#[derive(Debug, Default)]
pub(super) struct Scanner(Mutex<Option<JoinHandle<()>>>);

impl Scanner {
    pub(super) fn wait(&self) {
        let thread = lock(&self.0).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the usage scan panicked");
        }
    }
}

impl ImageCapacity {
    pub(super) fn note_opening_usage(&self) -> Result<()> {
        let free = u128::from(self.space()?.free);
        let mut ledger = lock(&self.ledger);
        let owned = ledger.used() + free;
        ledger.scan().note(owned);
        Ok(())
    }

    /// Scans all files while nothing is made or deleted.
    pub(super) fn exactly_owned(&self, ledger: &mut Ledger) -> Result<u128> {
        let before = self.space()?.free;
        let (volumes, snapshots) = (self.catalogue.volume_index(), self.catalogue.snapshot_index());
        volumes.ids().for_each(|id| ledger.note_seen(volumes.measure(&id)));
        snapshots.ids().for_each(|id| ledger.note_seen(snapshots.measure(&id)));
        // Volumes are written and discarded during the scan: the smaller of both counts no byte twice,
        // the larger leaves none out.
        let after = self.space()?.free;
        let free = before.max(after);
        let owned = ledger.used() + u128::from(free);
        ledger.scan().note_ceiling(owned, free);
        let owned = ledger.used() + u128::from(before.min(after));
        Ok(ledger.scan().note(owned))
    }

    pub(super) fn start_scan(self: &Arc<Self>, ledger: &mut Ledger) {
        let capacity = Arc::clone(self);
        let scan = move || {
            // Not before: our caller holds the lock that the end of it asks for.
            let under_way = ScanUnderWay { capacity };
            if let Err(error) = under_way.capacity.scan() {
                tracing::debug!(%error, "the usage scan failed");
            }
        };
        match thread::Builder::new().name("usage-scan".to_owned()).spawn(scan) {
            Ok(thread) => {
                // The one before has ended.
                *lock(&self.scanner.0) = Some(thread);
                ledger.scan().begin();
            }
            Err(error) => {
                tracing::debug!(%error, "cannot start a thread for the usage scan");
            }
        }
    }

    /// Has a scan that is under way ended in that time? Other calls go on during the wait.
    pub(super) fn has_scanned_within(&self, timeout: Duration) -> bool {
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        let is_under_way = || lock(&self.ledger).scan().is_under_way();
        if !is_under_way() {
            return false;
        }
        let deadline = Instant::now() + timeout;
        while is_under_way() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// As [`ImageCapacity::exactly_owned`], but others go on between two files.
    fn scan(&self) -> Result<()> {
        let before = u128::from(self.space()?.free);
        let removed_before = lock(&self.ledger).removed();
        self.scan_index(self.catalogue.volume_index());
        self.scan_index(self.catalogue.snapshot_index());
        let after = u128::from(self.space()?.free);
        let mut ledger = lock(&self.ledger);
        // What was deleted during the scan is free now, and counts as used no more.
        let free = after.min(before + ledger.removed().saturating_sub(removed_before));
        let owned = ledger.used() + free;
        ledger.scan().note(owned);
        Ok(())
    }

    fn scan_index<R: StoredRecord>(&self, index: &ObjectIndex<R>) {
        for id in index.ids() {
            let mut ledger = lock(&self.ledger);
            ledger.note_seen(index.measure(&id));
        }
    }
}

#[cfg(test)]
mod tests;
