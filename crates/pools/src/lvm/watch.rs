//! The thread that looks at the thin pool, so that it is enlarged and a shortage is logged without any call.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use orlop_model::{Error, Reason, Result};

use super::capacity::LvmCapacity;
use crate::poison::lock;

const INTERVAL: Duration = Duration::from_secs(10);
/// While the thin pool may soon have to be enlarged: writers of a full one are kept waiting for a minute.
const SHORT_INTERVAL: Duration = Duration::from_secs(2);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Dropped, it ends its thread when that is next idle.
#[derive(Debug)]
pub(super) struct PoolWatch {
    thread: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl PoolWatch {
    pub(super) fn start(pool: &str, capacity: &Arc<LvmCapacity>) -> Result<Self> {
        let (sender, stopped) = mpsc::channel();
        let (pool, capacity) = (pool.to_owned(), Arc::downgrade(capacity));
        let watching = move || {
            let (mut interval, mut trouble) = (Duration::ZERO, None);
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let Some(soon) = look(&pool, &capacity, &mut trouble) else { return };
                interval = if soon { SHORT_INTERVAL } else { INTERVAL };
            }
        };
        let handle = thread::Builder::new()
            .name("lvm-watch".to_owned())
            .spawn(watching)
            .map_err(|error| Error::failed("start a thread", Reason::of(error)))?;
        Ok(Self { thread: Mutex::new(Some((sender, handle))) })
    }

    /// Nothing more is begun. What is under way is waited for a little: a command of LVM may wait for a disk.
    pub(super) fn stop(&self) {
        let Some((sender, thread)) = lock(&self.thread).take() else { return };
        drop(sender);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// `None`: the pool is gone. An error that lasts is logged once.
fn look(pool: &str, capacity: &Weak<LvmCapacity>, trouble: &mut Option<String>) -> Option<bool> {
    let looked = capacity.upgrade()?.watch();
    let (soon, now) = match looked {
        Ok(soon) => (soon, None),
        Err(error) => (false, Some(error.to_string())),
    };
    if let Some(error) = &now
        && now != *trouble
    {
        tracing::warn!(
            pool,
            error,
            "cannot watch or enlarge the thin pool; it will be tried again"
        );
    }
    *trouble = now;
    Some(soon)
}
