//! Deleted images are freed by one process at a time.
//!
//! librbd ends a process by an assertion if another one frees the same image at the same time. So the
//! process that frees has a lease of the trash. It ends by itself, should its holder be killed, and is
//! renewed as long as the holder lives: a large image takes longer.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orlop_model::{Error, Reason, Result};
use orlop_sys::ceph::{IoCtx, TRASH};

use super::super::image_lock::nonce;
use super::super::session::Session;

const LOCK: &str = "orlop.free";
const LEASE_DURATION: Duration = Duration::from_secs(30);
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// While this lives, no other process frees what is in the trash.
#[derive(Debug)]
pub(super) struct TrashLease {
    io: Arc<IoCtx>,
    cookie: String,
    /// Dropped, it ends the thread.
    ending: Option<Sender<()>>,
    renewing: Option<JoinHandle<()>>,
}

impl TrashLease {
    /// `None`: another process has it.
    pub(super) fn try_acquire(session: &Session, pool: &str) -> Result<Option<Self>> {
        let what = format!("the trash of pool {pool}");
        let leasing = || format!("lease {what}");
        let cookie = nonce(&what)?;
        let lease = |io: &Arc<IoCtx>| {
            let leased = io.try_lease(TRASH, LOCK, &cookie, LEASE_DURATION)?;
            Ok(leased.then(|| Arc::clone(io)))
        };
        let Some(io) = session.ask(leasing, lease)? else { return Ok(None) };
        let mut lease = Self { io, cookie, ending: None, renewing: None };
        lease.start_renewing().map_err(|error| Error::failed(leasing(), Reason::of(error)))?;
        Ok(Some(lease))
    }

    fn start_renewing(&mut self) -> std::io::Result<()> {
        let (ending, ended) = mpsc::channel();
        let (io, cookie) = (Arc::clone(&self.io), self.cookie.clone());
        let renewing = thread::Builder::new()
            .name("rbd-lease".to_owned())
            .spawn(move || renew_until(&ended, &io, &cookie))?;
        (self.ending, self.renewing) = (Some(ending), Some(renewing));
        Ok(())
    }
}

fn renew_until(ended: &Receiver<()>, io: &IoCtx, cookie: &str) {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(RENEWAL_INTERVAL) {
        match io.try_lease(TRASH, LOCK, cookie, LEASE_DURATION) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("another daemon has taken over the lease of the trash"),
            Err(error) => tracing::warn!(%error, "cannot renew the lease of the trash"),
        }
    }
}

impl Drop for TrashLease {
    fn drop(&mut self) {
        drop(self.ending.take());
        // Or it would take the lease again after it was released.
        if let Some(renewing) = self.renewing.take() {
            let _ = renewing.join();
        }
        if let Err(error) = self.io.unlock(TRASH, LOCK, &self.cookie) {
            tracing::debug!(%error, "cannot release the lease of the trash; it expires by itself");
        }
    }
}
