//! The threads that do what no call waits for: freeing what is deleted, flattening what is too deep.
//!
//! All of it may be done by several processes at once and be left half-done: what is to do is
//! written in the pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Error, Reason, Result};

use super::Garbage;
use crate::poison::lock;

pub(in super::super) const HOUR: Duration = Duration::from_secs(3600);
/// After a failure, for example because the cluster still takes a killed client for alive; doubled each time.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(2);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

type Chore = fn(&Garbage) -> Result<()>;

/// What one thread does.
struct Duty {
    thread: &'static str,
    /// At start and every hour, before the prompt ones: these read every volume.
    hourly: &'static [Chore],
    /// Also when there is something to do.
    prompt: &'static [Chore],
}

/// A flattening takes as long as the volume is large, and a client that has an image open may take any
/// time to remove a snapshot of it; freeing does not wait for either.
const DUTIES: [Duty; 3] = [
    Duty {
        thread: "rbd-free",
        hourly: &[Garbage::collect_volumes],
        prompt: &[Garbage::trash_kept_images, Garbage::free_trash],
    },
    Duty {
        thread: "rbd-snapshots",
        hourly: &[],
        prompt: &[Garbage::remove_orphaned_snapshots, Garbage::remove_orphaned_groups],
    },
    Duty { thread: "rbd-flatten", hourly: &[], prompt: &[Garbage::flatten_requested] },
];

/// Dropped, it ends its threads when they are next idle.
#[derive(Debug, Default)]
pub(in super::super) struct Background {
    threads: Mutex<Vec<Sender<()>>>,
    /// How many of them are at work.
    busy: AtomicUsize,
}

impl Background {
    pub(super) fn start(&self, garbage: &Arc<Garbage>) -> Result<()> {
        for duty in DUTIES {
            let (sender, receiver) = mpsc::channel();
            let garbage = Arc::downgrade(garbage);
            thread::Builder::new()
                .name(duty.thread.to_owned())
                .spawn(move || work(&garbage, &duty, &receiver))
                .map_err(|error| Error::failed("start a thread", Reason::of(error)))?;
            lock(&self.threads).push(sender);
        }
        Ok(())
    }

    /// Nothing more is begun. `true`: nor is anything under way, which is waited for a little; to
    /// flatten a volume takes longer.
    pub(in super::super) fn stop(&self) -> bool {
        lock(&self.threads).clear();
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            match self.busy.load(Ordering::SeqCst) {
                0 => return true,
                _ if Instant::now() >= deadline => return false,
                _ => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// There is something to do.
    pub(in super::super) fn wake(&self) {
        for thread in lock(&self.threads).iter() {
            // A thread that is gone has nothing to be woken for.
            let _ = thread.send(());
        }
    }
}

fn work(garbage: &Weak<Garbage>, duty: &Duty, woken: &Receiver<()>) {
    let (mut failures, mut full_pass_at) = (0, Instant::now());
    loop {
        match woken.recv_timeout(pause(failures, full_pass_at)) {
            Ok(()) => while woken.try_recv().is_ok() {},
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(garbage) = garbage.upgrade() else { return };
        let busy = &garbage.background.busy;
        busy.fetch_add(1, Ordering::SeqCst);
        let is_full_pass = Instant::now() >= full_pass_at;
        let collected = !is_full_pass || do_all(&garbage, duty.hourly);
        if is_full_pass && collected {
            full_pass_at = Instant::now() + HOUR;
        }
        failures = if do_all(&garbage, duty.prompt) && collected { 0 } else { failures + 1 };
        busy.fetch_sub(1, Ordering::SeqCst);
    }
}

fn pause(failures: u32, full_pass_at: Instant) -> Duration {
    match failures.checked_sub(1) {
        None => full_pass_at.saturating_duration_since(Instant::now()),
        Some(repeated) => {
            FIRST_RETRY_INTERVAL.saturating_mul(1 << repeated.min(10)).min(MAX_RETRY_INTERVAL)
        }
    }
}

fn do_all(garbage: &Garbage, chores: &[Chore]) -> bool {
    let mut done = true;
    for chore in chores {
        if let Err(error) = chore(garbage) {
            tracing::warn!(
                %error,
                pool = garbage.info.name,
                "garbage collection failed; it will be retried"
            );
            done = false;
        }
    }
    done
}
