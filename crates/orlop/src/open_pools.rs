//! The pools that are open, and how they are closed.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use orlop_model::{Pool, PoolId};
use orlop_pools::image::ImagePool;
use orlop_pools::rbd::RbdPool;

/// A pool that takes longer to close is left as it is: the next start takes it up as after a kill.
const CLOSING: Duration = Duration::from_secs(25);

pub(crate) enum OpenPool {
    Image(Arc<ImagePool>),
    Rbd(Arc<RbdPool>),
}

impl OpenPool {
    pub(crate) fn served(&self) -> Arc<dyn Pool> {
        match self {
            Self::Image(pool) => Arc::<ImagePool>::clone(pool),
            Self::Rbd(pool) => Arc::<RbdPool>::clone(pool),
        }
    }

    fn id(&self) -> PoolId {
        self.served().id().clone()
    }

    fn close(&self) {
        match self {
            Self::Image(pool) => pool.close(),
            Self::Rbd(pool) => pool.close(),
        }
    }
}

/// All pools that are in service, also those that came late; closed when the daemon stops.
#[derive(Default)]
pub(crate) struct OpenPools(Mutex<Closable>);

#[derive(Default)]
struct Closable {
    open: Vec<OpenPool>,
    closed: bool,
}

impl OpenPools {
    pub(crate) fn add(&self, pool: OpenPool) {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pools.closed {
            pool.close();
        } else {
            pools.open.push(pool);
        }
    }

    /// Nothing uses them any more, but for those that do not answer: to close one of them would take
    /// without end. What is added afterwards is closed at once.
    pub(crate) fn close(&self, hung: &[PoolId]) {
        let open = {
            let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            pools.closed = true;
            std::mem::take(&mut pools.open)
        };
        let (hung, answering): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|pool| hung.contains(&pool.id()));
        // Also what is done when it is dropped would wait for its disk.
        std::mem::forget(hung);
        close_all(answering);
    }
}

/// That a pool hangs may show only now: nothing is asked of one that is not used.
fn close_all(pools: Vec<OpenPool>) {
    let deadline = Instant::now() + CLOSING;
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
