//! The one connection to the cluster, and what to do when the cluster has thrown us out.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use orlop_model::{Error, PoolId, Result};
use orlop_sys::ceph::{Cluster, ClusterConfig, IoCtx};
use rustix::io::Errno;

use super::failure::Doing;
use super::own_client::OwnClient;
use super::pulse::Pulse;
use crate::poison::lock;

#[derive(Debug)]
pub(super) struct Connection {
    config: ClusterConfig,
    pool: String,
    namespace: String,
    current: Mutex<Arc<IoCtx>>,
    /// Held by whoever connects anew, which takes a while; the others use what there is meanwhile.
    renewing: Mutex<()>,
    own: OnceLock<OwnClient>,
    pub(super) pulse: Arc<Pulse>,
}

impl Connection {
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
        let current = connect(&config, &pool, &namespace).doing(opening)?;
        // Objects could be written all the same, but no image.
        if !namespace.is_empty() && !current.has_directory().doing(opening)? {
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
            renewing: Mutex::default(),
            own: OnceLock::new(),
            pulse: Arc::default(),
        })
    }

    /// Before the first image is opened.
    pub(super) fn introduce(&self, run_dir: &Path, pool: &PoolId) -> Result<()> {
        if let Some(own) = OwnClient::take_place(run_dir, pool)? {
            own.succeed(&self.io())?;
            // Whoever was quicker has taken a place as well, and ours is free again.
            let _ = self.own.set(own);
        }
        Ok(())
    }

    /// Nothing is open any more, so that nobody has to be stopped by a successor.
    pub(super) fn leave(&self) {
        if let Some(own) = self.own.get() {
            own.forget();
        }
    }

    pub(super) fn pool(&self) -> &str {
        &self.pool
    }

    fn io(&self) -> Arc<IoCtx> {
        Arc::clone(&lock(&self.current))
    }

    /// Asks the cluster, unless it is known to be away. What is asked must bear to be asked twice.
    pub(super) fn ask<T>(
        &self,
        doing: impl Fn() -> String,
        ask: impl Fn(&Arc<IoCtx>) -> orlop_sys::Result<T>,
    ) -> Result<T> {
        self.pulse.call(&doing, || self.ask_anyway(&doing, ask))
    }

    /// A client that was blocklisted, by a fence or by an operator, is refused everything for good
    /// (`ESHUTDOWN`): then a new one asks again.
    pub(super) fn ask_anyway<T>(
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
                ask(&self.renewed(&io).doing(&doing)?)
            }
            answer => answer,
        }
        .doing(doing)
    }

    /// Another thread may have been faster.
    fn renewed(&self, refused: &Arc<IoCtx>) -> orlop_sys::Result<Arc<IoCtx>> {
        let _alone = lock(&self.renewing);
        let current = self.io();
        if !Arc::ptr_eq(&current, refused) {
            return Ok(current);
        }
        let new = connect(&self.config, &self.pool, &self.namespace)?;
        if let Some(own) = self.own.get()
            && let Err(error) = own.note(&new)
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

impl Drop for Connection {
    fn drop(&mut self) {
        self.pulse.end();
        self.leave();
    }
}

fn connect(config: &ClusterConfig, pool: &str, namespace: &str) -> orlop_sys::Result<Arc<IoCtx>> {
    Cluster::connect(config)?.pool(pool, namespace)
}
