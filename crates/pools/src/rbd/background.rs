//! Work that nobody waits for: freeing what is deleted, flattening what is too deep.
//!
//! All of it may be done by several processes at once and be left half-done: what is to do is
//! written in the pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use orlop_model::{Error, Result};

use super::cut::OfImage;
use super::group_cut::OfImages;
use super::store::Store;
use crate::poison::lock;

pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// After something could not be done, such as while the cluster still takes a client that was
/// killed for alive; then after twice that, and so on.
const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(60);

type Chore = fn(&Store) -> Result<()>;

/// A flattening takes as long as the volume is large; freeing does not wait for it.
const THREADS: [(&str, &[Chore]); 2] = [
    (
        "rbd-free",
        &[
            Store::sweep_volumes,
            Store::sweep::<OfImage>,
            Store::sweep::<OfImages>,
            Store::sweep_kept,
            Store::free_trash,
        ],
    ),
    ("rbd-flatten", &[Store::flatten_noted]),
];

/// Dropped, it ends its threads when they are next idle.
#[derive(Debug, Default)]
pub(super) struct Background {
    threads: Mutex<Vec<Sender<()>>>,
    /// How many of them are at work.
    busy: AtomicUsize,
}

impl Background {
    pub(super) fn start(&self, store: &Arc<Store>) -> Result<()> {
        for (name, chores) in THREADS {
            let (sender, receiver) = mpsc::channel();
            let store = Arc::downgrade(store);
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || work(&store, chores, &receiver))
                .map_err(|error| Error::failed("start a thread", error))?;
            lock(&self.threads).push(sender);
        }
        self.wake();
        Ok(())
    }

    /// Nothing more is begun. `true`: nor is anything under way.
    pub(super) fn stop(&self) -> bool {
        lock(&self.threads).clear();
        self.busy.load(Ordering::SeqCst) == 0
    }

    /// There is something to do.
    pub(super) fn wake(&self) {
        for thread in lock(&self.threads).iter() {
            // A thread that is gone has nothing to be woken for.
            let _ = thread.send(());
        }
    }
}

fn work(store: &Weak<Store>, chores: &[Chore], woken: &Receiver<()>) {
    let mut failures = 0;
    loop {
        match woken.recv_timeout(pause_after(failures)) {
            Ok(()) => while woken.try_recv().is_ok() {},
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(store) = store.upgrade() else { return };
        let busy = &store.background.busy;
        busy.fetch_add(1, Ordering::SeqCst);
        failures = if do_all(&store, chores) { 0 } else { failures + 1 };
        busy.fetch_sub(1, Ordering::SeqCst);
    }
}

fn pause_after(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => HOUR,
        Some(repeated) => SOON.saturating_mul(1 << repeated.min(10)).min(LATER),
    }
}

fn do_all(store: &Store, chores: &[Chore]) -> bool {
    let mut done = true;
    for chore in chores {
        if let Err(error) = chore(store) {
            tracing::warn!(%error, pool = store.name, "housekeeping will be tried again");
            done = false;
        }
    }
    done
}
