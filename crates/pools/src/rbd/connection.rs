//! The one connection to the cluster, and what to do when the cluster has thrown us out.

use std::sync::{Arc, Mutex};

use orlop_model::{Error, Result};
use orlop_sys::ceph::{Cluster, ClusterConfig, IoCtx};
use rustix::io::Errno;

use super::failure::Doing;
use crate::poison::lock;

#[derive(Debug)]
pub(super) struct Connection {
    config: ClusterConfig,
    pool: String,
    namespace: String,
    current: Mutex<Arc<IoCtx>>,
}

impl Connection {
    pub(super) fn open(config: ClusterConfig, pool: String, namespace: String) -> Result<Self> {
        let opening = || format!("open the Ceph pool {pool}");
        let current = connect(&config, &pool, &namespace).doing(opening)?;
        // Objects could be written all the same, but no image.
        if !namespace.is_empty() && !current.has_directory().doing(opening)? {
            return Err(Error::failed(
                opening(),
                format!("it has no namespace {namespace}; `rbd namespace create` makes one"),
            ));
        }
        Ok(Self { config, pool, namespace, current: Mutex::new(current) })
    }

    pub(super) fn pool(&self) -> &str {
        &self.pool
    }

    pub(super) fn io(&self) -> Arc<IoCtx> {
        Arc::clone(&lock(&self.current))
    }

    /// Asks the cluster. A client that was blocklisted, by a fence or by an operator, is refused
    /// everything for good (`ESHUTDOWN`): then a new one asks again. What is asked must bear to be
    /// asked twice.
    pub(super) fn ask<T>(
        &self,
        doing: impl Fn() -> String,
        ask: impl Fn(&Arc<IoCtx>) -> orlop_sys::Result<T>,
    ) -> Result<T> {
        let io = self.io();
        match ask(&io) {
            Err(error) if error.errno() == Some(Errno::SHUTDOWN) => {
                tracing::warn!(%error, "the cluster refuses this client; connecting as a new one");
                ask(&self.renewed(&io).doing(&doing)?)
            }
            answer => answer,
        }
        .doing(doing)
    }

    /// Another thread may have been faster.
    fn renewed(&self, refused: &Arc<IoCtx>) -> orlop_sys::Result<Arc<IoCtx>> {
        let mut current = lock(&self.current);
        if Arc::ptr_eq(&current, refused) {
            *current = connect(&self.config, &self.pool, &self.namespace)?;
        }
        Ok(Arc::clone(&current))
    }
}

fn connect(config: &ClusterConfig, pool: &str, namespace: &str) -> orlop_sys::Result<Arc<IoCtx>> {
    Cluster::connect(config)?.pool(pool, namespace)
}
