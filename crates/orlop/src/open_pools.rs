//! The pools that are open, and how they are closed.

use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Pool, PoolId, Result};
use orlop_pools::image::ImagePool;
use orlop_pools::lvm::LvmPool;
use orlop_pools::rbd::RbdPool;

/// A pool that takes longer to close is left as it is: the next start takes it up as after a kill.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(25);
/// The same of a pool that is being opened when the daemon stops.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) enum OpenPool {
    Image(Arc<ImagePool>),
    Lvm(Arc<LvmPool>),
    Rbd(Arc<RbdPool>),
}

/// A pool that remembers the run directory of the daemon that serves it (decision 0043).
pub(crate) trait StampedPool: Pool {
    fn run_stamp(&self) -> Option<String>;

    fn set_run_stamp(&self, stamp: String, run_dir: &Path) -> Result<()>;
}

impl StampedPool for ImagePool {
    fn run_stamp(&self) -> Option<String> {
        self.run_stamp()
    }

    fn set_run_stamp(&self, stamp: String, run_dir: &Path) -> Result<()> {
        self.set_run_stamp(stamp, run_dir)
    }
}

impl StampedPool for LvmPool {
    fn run_stamp(&self) -> Option<String> {
        self.run_stamp()
    }

    fn set_run_stamp(&self, stamp: String, run_dir: &Path) -> Result<()> {
        self.set_run_stamp(stamp, run_dir)
    }
}

impl OpenPool {
    pub(crate) fn served(&self) -> Arc<dyn Pool> {
        match self {
            Self::Image(pool) => Arc::<ImagePool>::clone(pool),
            Self::Lvm(pool) => Arc::<LvmPool>::clone(pool),
            Self::Rbd(pool) => Arc::<RbdPool>::clone(pool),
        }
    }

    /// `None`: other machines use it as well.
    pub(crate) fn stamped(&self) -> Option<&dyn StampedPool> {
        match self {
            Self::Image(pool) => Some(pool.as_ref()),
            Self::Lvm(pool) => Some(pool.as_ref()),
            Self::Rbd(_) => None,
        }
    }

    fn id(&self) -> PoolId {
        self.served().id().clone()
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Image(this), Self::Image(other)) => Arc::ptr_eq(this, other),
            (Self::Lvm(this), Self::Lvm(other)) => Arc::ptr_eq(this, other),
            (Self::Rbd(this), Self::Rbd(other)) => Arc::ptr_eq(this, other),
            (Self::Image(_) | Self::Lvm(_) | Self::Rbd(_), _) => false,
        }
    }

    fn close(&self) {
        match self {
            Self::Image(pool) => pool.close(),
            Self::Lvm(pool) => pool.close(),
            Self::Rbd(pool) => pool.close(),
        }
    }
}

/// All pools that are open, also those that came late; closed when the daemon stops.
#[derive(Default)]
pub(crate) struct OpenPools {
    state: Mutex<OpenPoolsState>,
    changed: Condvar,
}

#[derive(Default)]
struct OpenPoolsState {
    open: Vec<OpenPool>,
    /// How many are being opened at this moment.
    opening: usize,
    is_stopping: bool,
}

/// A pool is being opened for as long as this lives.
pub(crate) struct OpeningGuard(Arc<OpenPools>);

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.0.lock().opening -= 1;
        self.0.changed.notify_all();
    }
}

impl OpenPools {
    /// A stop waits for its end: what is opened then would stay mounted and attached.
    pub(crate) fn begin_opening(self: &Arc<Self>) -> OpeningGuard {
        self.lock().opening += 1;
        OpeningGuard(Arc::clone(self))
    }

    /// Closed at once if the daemon stops.
    pub(crate) fn add(&self, pool: OpenPool) {
        let mut state = self.lock();
        if state.is_stopping {
            drop(state);
            pool.close();
        } else {
            state.open.push(pool);
        }
    }

    /// Closes a pool that was opened in vain.
    pub(crate) fn discard(&self, pool: &OpenPool) {
        let discarded = {
            let mut state = self.lock();
            let position = state.open.iter().position(|open| open.is(pool));
            position.map(|position| state.open.swap_remove(position))
        };
        if let Some(pool) = discarded {
            pool.close();
        }
    }

    /// From now on nothing is opened any more, and what is just being opened is closed when it is.
    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Nothing uses them any more, but for those that do not answer: to close one of them would take
    /// without end.
    pub(crate) fn close(&self, hung: &[PoolId]) {
        self.stop();
        let opening = |state: &mut OpenPoolsState| state.opening > 0;
        let waited = self.changed.wait_timeout_while(self.lock(), OPEN_TIMEOUT, opening);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        let open = std::mem::take(&mut state.open);
        drop(state);
        if waited.timed_out() {
            tracing::error!("stopping without closing a pool that is still being opened");
        }
        let (hung, answering): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|pool| hung.contains(&pool.id()));
        // Also what is done when it is dropped would wait for its disk.
        std::mem::forget(hung);
        close_all(answering);
    }

    fn lock(&self) -> MutexGuard<'_, OpenPoolsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool that was not used may turn out to hang only now.
fn close_all(pools: Vec<OpenPool>) {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    let closing: Vec<_> = pools.into_iter().filter_map(begin_to_close).collect();
    for (name, closed) in closing {
        if closed.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err() {
            tracing::error!(pool = name, "stopping without closing a pool that does not respond");
        }
    }
}

fn begin_to_close(pool: OpenPool) -> Option<(String, Receiver<()>)> {
    let name = pool.served().name().to_owned();
    let (done, closed) = mpsc::sync_channel(1);
    let close = move || {
        pool.close();
        // The receiver is gone only if it took too long.
        let _ = done.send(());
    };
    match thread::Builder::new().name("close-pool".to_owned()).spawn(close) {
        Ok(_) => Some((name, closed)),
        Err(error) => {
            tracing::warn!(pool = name, %error, "cannot close a pool; the next start recovers it");
            None
        }
    }
}
