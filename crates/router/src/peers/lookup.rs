//! Resolves the names of peers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::PEER_TIMEOUT;

/// A lookup cannot be cancelled, and takes a minute while no name server answers. So each name has at most one,
/// on a thread that no call needs.
#[derive(Clone, Default)]
pub(super) struct Lookups {
    under_way: Arc<Mutex<BTreeSet<String>>>,
    /// What each name stood for when it was last resolved.
    last: Arc<Mutex<BTreeMap<String, Vec<SocketAddr>>>>,
}

/// What a name stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) addresses: Vec<SocketAddr>,
    /// Why the addresses are those of before, or none.
    pub(super) problem: Option<String>,
}

impl Lookups {
    /// The addresses of `HOST:PORT`. Daemons do not end with the name service: while a name cannot be resolved, it
    /// stands for what it stood for before.
    pub(super) async fn resolve(&self, name: &str) -> Resolved {
        self.resolve_by(name, |name| name.to_socket_addrs().map(Iterator::collect)).await
    }

    async fn resolve_by(
        &self,
        name: &str,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Resolved {
        match self.look_up(name, look_up).await {
            Ok(addresses) => Resolved { addresses, problem: None },
            Err(problem) => {
                let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                let addresses = last.get(name).cloned().unwrap_or_default();
                Resolved { addresses, problem: Some(problem) }
            }
        }
    }

    async fn look_up(
        &self,
        name: &str,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Vec<SocketAddr>, String> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let no_answer = || "the name service does not answer".to_owned();
        let running = self.begin(name).ok_or_else(no_answer)?;
        let (answer, answered) = oneshot::channel();
        let looking_up = move || {
            let found = look_up(&running.name);
            // Also an answer that comes too late.
            found.iter().for_each(|addresses| running.remember(addresses));
            drop(running);
            // The caller may have given up.
            let _ = answer.send(found);
        };
        thread::Builder::new()
            .name("name-lookup".to_owned())
            .spawn(looking_up)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        match timeout(PEER_TIMEOUT, answered).await {
            Ok(Ok(found)) => found.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("the lookup of the name panicked".to_owned()),
            Err(_) => Err(no_answer()),
        }
    }

    fn begin(&self, name: &str) -> Option<Running> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = under_way.insert(name.to_owned());
        is_first.then(|| Running { lookups: self.clone(), name: name.to_owned() })
    }
}

/// Ends with the lookup, also with one that panics or was never begun.
struct Running {
    lookups: Lookups,
    name: String,
}

impl Running {
    fn remember(&self, addresses: &[SocketAddr]) {
        let mut last = self.lookups.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.insert(self.name.clone(), addresses.to_vec());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut under_way = self.lookups.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.remove(&self.name);
    }
}

#[cfg(test)]
mod tests;
