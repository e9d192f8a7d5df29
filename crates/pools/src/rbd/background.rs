//! Work that nobody waits for: freeing what is deleted, flattening what is too deep.
//!
//! All of it may be done by several processes at once and be left half-done: what is to do is
//! written in the pool.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Result};

use super::store::Store;
use crate::poison::lock;

pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// After something could not be done, such as while the cluster still takes a client that was
/// killed for alive.
const SOON: Duration = Duration::from_secs(30);

type Chore = fn(&Store) -> Result<()>;

/// What one thread does.
struct Duty {
    thread: &'static str,
    /// At start and every hour, as it looks at every volume; before the others.
    hourly: &'static [Chore],
    /// Also when there is something to do.
    prompt: &'static [Chore],
}

/// A flattening takes as long as the volume is large; freeing does not wait for it.
const DUTIES: [Duty; 2] = [
    Duty {
        thread: "rbd-free",
        hourly: &[Store::sweep_volumes],
        prompt: &[Store::sweep_cuts, Store::sweep_kept, Store::free_trash],
    },
    Duty { thread: "rbd-flatten", hourly: &[], prompt: &[Store::flatten_noted] },
];

/// Dropped, it ends its threads when they are next idle.
#[derive(Debug, Default)]
pub(super) struct Background {
    threads: Mutex<Vec<Sender<()>>>,
}

impl Background {
    pub(super) fn start(&self, store: &Arc<Store>) -> Result<()> {
        for duty in DUTIES {
            let (sender, receiver) = mpsc::channel();
            let store = Arc::downgrade(store);
            thread::Builder::new()
                .name(duty.thread.to_owned())
                .spawn(move || work(&store, &duty, &receiver))
                .map_err(|error| Error::failed("start a thread", error))?;
            lock(&self.threads).push(sender);
        }
        self.wake();
        Ok(())
    }

    /// There is something to do.
    pub(super) fn wake(&self) {
        for thread in lock(&self.threads).iter() {
            // A thread that is gone has nothing to be woken for.
            let _ = thread.send(());
        }
    }
}

fn work(store: &Weak<Store>, duty: &Duty, woken: &Receiver<()>) {
    let (mut pause, mut sweep_at) = (HOUR, Instant::now());
    loop {
        match woken.recv_timeout(pause) {
            Ok(()) => while woken.try_recv().is_ok() {},
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(store) = store.upgrade() else { return };
        if Instant::now() >= sweep_at {
            sweep_at = Instant::now() + do_all(&store, duty.hourly);
        }
        pause = do_all(&store, duty.prompt);
        pause = pause.min(sweep_at.saturating_duration_since(Instant::now()));
    }
}

/// Returns when to do them again. One that fails does not keep the others from being done.
fn do_all(store: &Store, chores: &[Chore]) -> Duration {
    let mut again = HOUR;
    for chore in chores {
        if let Err(error) = chore(store) {
            tracing::warn!(%error, pool = store.name, "housekeeping will be tried again");
            again = SOON;
        }
    }
    again
}
