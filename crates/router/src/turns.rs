//! How many creations are under way at once. Each keeps a call open on every peer, and a connection has a
//! limit of those. Creations for other nodes do not wait for the same turns: a node may hang.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// At once, for the same nodes. A connection has 256 calls, so as many creations as wait for fifteen nodes
/// that hang leave room for others.
const CREATIONS: usize = 16;

#[derive(Clone, Default)]
pub(crate) struct Turns {
    by_nodes: Arc<Mutex<BTreeMap<BTreeSet<String>, Arc<Semaphore>>>>,
}

impl Turns {
    /// A call that finds no turn waits, for as long as its caller does.
    pub(crate) async fn wait(
        &self,
        nodes: BTreeSet<String>,
    ) -> Result<OwnedSemaphorePermit, Status> {
        let turns = self.of(nodes);
        turns.acquire_owned().await.map_err(|_| Status::unavailable("stopping; try again"))
    }

    fn of(&self, nodes: BTreeSet<String>) -> Arc<Semaphore> {
        let mut by_nodes = self.by_nodes.lock().unwrap_or_else(PoisonError::into_inner);
        // Callers and their permits have the others.
        by_nodes.retain(|_, turns| Arc::strong_count(turns) > 1);
        let turns = by_nodes.entry(nodes).or_insert_with(|| Arc::new(Semaphore::new(CREATIONS)));
        Arc::clone(turns)
    }
}
