//! The one connection to the cluster: every call to it goes through [`Session::ask`].
//!
//! A client that the cluster has blocklisted is replaced by a new one; a cluster that does not
//! answer is not asked again until it does (`circuit_breaker.rs`). What it answers becomes an error of
//! the pool in one function.

mod circuit_breaker;
mod own_client;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use orlop_model::{Error, PoolId, Reason, Result};
use orlop_sys::CallError;
use orlop_sys::ceph::{Cluster, ClusterConfig, IoCtx};
use rustix::io::Errno;

use crate::poison::lock;
use circuit_breaker::CircuitBreaker;
pub(super) use circuit_breaker::Probe;
use own_client::OwnClient;

#[derive(Debug)]
pub(super) struct Session {
    config: ClusterConfig,
    pool: String,
    namespace: String,
    current: Mutex<Arc<IoCtx>>,
    /// Held by the thread that connects again, which takes a while; the others go on with the old
    /// connection until then.
    reconnecting: Mutex<()>,
    own_client: OnceLock<OwnClient>,
    breaker: Arc<CircuitBreaker>,
}

impl Session {
    /// What librados says of it would not name the file.
    pub(super) fn check_keyring(config: &ClusterConfig, pool: &str) -> Result<()> {
        let opened = std::fs::File::open(&config.keyring);
        opened.map(drop).map_err(|error| {
            let why = format!("keyring {}: {error}", config.keyring.display());
            Error::failed(format!("open the Ceph pool {pool}"), why)
        })
    }

    pub(super) fn open(config: ClusterConfig, pool: String, namespace: String) -> Result<Self> {
        let opening = || format!("open the Ceph pool {pool}");
        Self::check_keyring(&config, &pool)?;
        let current = connect(&config, &pool, &namespace).map_err(cannot(opening))?;
        // Objects could be written all the same, but no image.
        if !namespace.is_empty() && !current.has_directory().map_err(cannot(opening))? {
            return Err(Error::failed(
                opening(),
                format!("it has no namespace {namespace}; `rbd namespace create` makes one"),
            ));
        }
        Ok(Self {
            config,
            pool,
            namespace,
            current: Mutex::new(current),
            reconnecting: Mutex::default(),
            own_client: OnceLock::new(),
            breaker: Arc::default(),
        })
    }

    /// Blocklists the client of a daemon that was killed and records our own address for the next
    /// daemon. Before the first image is opened.
    pub(super) fn register_client(&self, run_dir: &Path, pool: &PoolId) -> Result<()> {
        if let Some(own) = OwnClient::claim(run_dir, pool)? {
            own.replace_predecessor(&self.io())?;
            // If another thread was faster, its slot is used, and ours is free again.
            let _ = self.own_client.set(own);
        }
        Ok(())
    }

    /// Nothing is open any more, so that the next daemon need not blocklist this client.
    pub(super) fn unregister_client(&self) {
        if let Some(own) = self.own_client.get() {
            own.forget();
        }
    }

    /// From here on the probe asks the cluster regularly; it ends when the probe is dropped.
    pub(super) fn start_probing<P: Probe>(&self, probe: &Arc<P>) -> Result<()> {
        self.breaker.start(probe)
    }

    /// The answer to a probe that is made now; quick, also when the cluster does not answer.
    pub(super) fn health(&self) -> Result<()> {
        self.breaker.health()
    }

    /// The name that Ceph has for the pool.
    pub(super) fn ceph_pool(&self) -> &str {
        &self.pool
    }

    pub(super) fn operation_timeout(&self) -> std::time::Duration {
        self.config.operation_timeout
    }

    fn io(&self) -> Arc<IoCtx> {
        Arc::clone(&lock(&self.current))
    }

    /// Asks the cluster, unless it is known not to answer. What is asked must be idempotent.
    pub(super) fn ask<T>(
        &self,
        doing: impl Fn() -> String,
        ask: impl Fn(&Arc<IoCtx>) -> orlop_sys::Result<T>,
    ) -> Result<T> {
        let admitted = self.breaker.admit(&doing)?;
        let answer = self.ask_unguarded(doing, ask);
        admitted.report(&answer);
        answer
    }

    /// Without the circuit breaker: for the probe, which finds out whether the cluster answers.
    ///
    /// A client that was blocklisted, by fencing or by an operator, is refused everything for good
    /// (`ESHUTDOWN`): then a new one asks again.
    pub(super) fn ask_unguarded<T>(
        &self,
        doing: impl Fn() -> String,
        ask: impl Fn(&Arc<IoCtx>) -> orlop_sys::Result<T>,
    ) -> Result<T> {
        let io = self.io();
        match ask(&io) {
            Err(error) if error.errno() == Some(Errno::SHUTDOWN) => {
                tracing::warn!(
                    %error,
                    "the cluster has blocklisted this client; connecting as a new one"
                );
                ask(&self.reconnected(&io).map_err(cannot(&doing))?)
            }
            answer => answer,
        }
        .map_err(cannot(doing))
    }

    /// Another thread may have been faster.
    fn reconnected(&self, refused: &Arc<IoCtx>) -> orlop_sys::Result<Arc<IoCtx>> {
        let _alone = lock(&self.reconnecting);
        let current = self.io();
        if !Arc::ptr_eq(&current, refused) {
            return Ok(current);
        }
        let new = connect(&self.config, &self.pool, &self.namespace)?;
        if let Some(own) = self.own_client.get()
            && let Err(error) = own.record_address(&new)
        {
            tracing::warn!(
                %error,
                "cannot record this client's address; if the daemon is killed, its locks \
                 expire only after about 30 seconds"
            );
        }
        *lock(&self.current) = Arc::clone(&new);
        Ok(new)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.breaker.end();
        self.unregister_client();
    }
}

fn connect(config: &ClusterConfig, pool: &str, namespace: &str) -> orlop_sys::Result<Arc<IoCtx>> {
    Cluster::connect(config)?.pool(pool, namespace)
}

/// For `map_err`: what the call was to do, as a verb phrase. The text is only built when it failed.
pub(super) fn cannot<E: CallError>(doing: impl FnOnce() -> String) -> impl FnOnce(E) -> Error {
    |error| failure(doing(), error)
}

fn failure(doing: String, error: impl CallError) -> Error {
    if let Some(device) = error.busy_device() {
        return crate::in_use::device_busy(device);
    }
    if error.is_held_by_operator() {
        return Error::precondition(Reason::explained(format!("cannot {doing}: {error}"), error));
    }
    let advice = match error.errno() {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            let text = format!(
                "cannot {doing}: {error}; the Ceph pool or its quota is used up: delete volumes or \
                 snapshots, raise the quota or give the cluster more space"
            );
            return Error::exhausted(Reason::explained(text, error));
        }
        Some(Errno::TIMEDOUT | Errno::SHUTDOWN | Errno::NOTCONN | Errno::CONNREFUSED) => {
            let text = format!("{error}; the Ceph cluster does not answer: check that it is up");
            return Error::unreachable(doing, Reason::explained(text, error));
        }
        Some(Errno::BUSY | Errno::CANCELED) => {
            return Error::busy("the Ceph image", format!("cannot {doing}: {error}"));
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            "the Ceph user may not do this, or its key is wrong: compare the keyring with `ceph auth get`, and give \
             the user the capabilities that docs/ceph.md lists"
        }
        Some(Errno::ROFS) => "another client holds the image's lock and does not release it",
        Some(Errno::NOENT) => "it was removed, or was never there",
        Some(_) | None => return Error::failed(doing, Reason::of(error)),
    };
    Error::failed(doing, Reason::explained(format!("{error}; {advice}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: Errno) -> Error {
        failure("open".to_owned(), std::io::Error::from(errno))
    }

    #[test]
    fn transient_errors_differ_from_permanent_ones() {
        assert!(matches!(of(Errno::NOSPC), Error::Exhausted(_)));
        assert!(matches!(of(Errno::DQUOT), Error::Exhausted(_)));
        assert!(matches!(of(Errno::TIMEDOUT), Error::Unreachable { .. }));
        assert!(matches!(of(Errno::SHUTDOWN), Error::Unreachable { .. }));
        assert!(matches!(of(Errno::BUSY), Error::Busy { .. }));
        for errno in [Errno::PERM, Errno::NOENT, Errno::ROFS, Errno::IO] {
            assert!(matches!(of(errno), Error::Failed { .. }), "{errno}");
        }
    }
}
