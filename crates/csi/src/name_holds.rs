//! Names that routers hold, each for as long as its stream is open, and the call that runs under one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use orlop_engine::NameHold;
use orlop_model::id::shown;
use tonic::Status;
use tonic::codegen::http::HeaderMap;

/// The key of metadata by which CreateVolume names the session of a HoldName.
pub const SESSION: &str = "orlop-session";

tokio::task_local! {
    /// Of the call that this task answers.
    static HELD: RefCell<Option<NameHold>>;
}

#[derive(Clone, Default)]
pub(crate) struct NameHolds {
    sessions: Arc<Mutex<HashMap<String, NameHold>>>,
}

/// Ends the hold when it is dropped, unless a call has taken it over.
pub(crate) struct HoldSession {
    pub(crate) id: String,
    holds: NameHolds,
}

impl Drop for HoldSession {
    fn drop(&mut self) {
        self.holds.remove(&self.id);
    }
}

impl NameHolds {
    pub(crate) fn insert(&self, id: String, hold: NameHold) -> HoldSession {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(id.clone(), hold);
        HoldSession { id, holds: self.clone() }
    }

    fn remove(&self, id: &str) -> Option<NameHold> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    /// Takes over the hold that a call names. A session that is gone is an error: its router has given up,
    /// and another one may hold the name by now.
    pub(crate) fn take(&self, headers: &HeaderMap) -> Result<Option<NameHold>, Status> {
        let Some(value) = headers.get(SESSION) else { return Ok(None) };
        let id = value.to_str().unwrap_or_default();
        let gone = || {
            Status::aborted(format!(
                "cannot create the volume: the session {} that holds its name has ended; try again",
                shown(id)
            ))
        };
        self.remove(id).map(Some).ok_or_else(gone)
    }
}

/// Answers a call under a hold.
pub(crate) async fn with_hold<F: Future>(hold: Option<NameHold>, answering: F) -> F::Output {
    HELD.scope(RefCell::new(hold), answering).await
}

/// The hold of the call that this task answers, once.
pub(crate) fn take_held() -> Option<NameHold> {
    HELD.try_with(RefCell::take).ok().flatten()
}
