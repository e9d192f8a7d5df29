//! A pool that only pretends, for tests of the layers above without root.
//!
//! Volumes hold no bytes. Each has a tag instead, which a test writes and reads and which copies
//! inherit, so that a test can see what a volume is a copy of, and knows which of its blocks were
//! written. Devices are numbers and paths that lead nowhere.

mod catalogue;
mod changed_blocks;
mod content;
mod devices;
mod draft;
mod health;
mod provisioner;
mod scenario;
mod shared;
mod state;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use orlop_model::{
    Catalogue, ChangedBlocks, Devices, Health, Pool, PoolId, PoolInfo, Provisioner, Shared,
    Topology,
};

use crate::poison::lock;
use state::MemoryPoolState;

static POOLS: AtomicU32 = AtomicU32::new(1);

#[derive(Debug, Clone)]
pub struct MemoryPoolConfig {
    pub name: String,
    pub topology: Topology,
    pub capacity_bytes: u64,
}

impl Default for MemoryPoolConfig {
    fn default() -> Self {
        Self { name: "memory".to_owned(), topology: Topology::default(), capacity_bytes: 1 << 40 }
    }
}

#[derive(Debug)]
pub struct MemoryPool {
    info: PoolInfo,
    state: Arc<Mutex<MemoryPoolState>>,
}

impl MemoryPool {
    pub fn new(config: MemoryPoolConfig) -> Self {
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        Self::with_id(PoolId::from_random(number.to_be_bytes()), config)
    }

    /// For tests that name volumes by ids which they know beforehand.
    pub fn with_id(id: PoolId, config: MemoryPoolConfig) -> Self {
        let state =
            MemoryPoolState { capacity: config.capacity_bytes, ..MemoryPoolState::default() };
        let info = PoolInfo { id, name: config.name, topology: config.topology };
        Self { info, state: Arc::new(Mutex::new(state)) }
    }
}

impl Pool for MemoryPool {
    fn info(&self) -> &PoolInfo {
        &self.info
    }

    fn catalogue(&self) -> &dyn Catalogue {
        self
    }

    fn provisioner(&self) -> &dyn Provisioner {
        self
    }

    fn devices(&self) -> &dyn Devices {
        self
    }

    fn changed_blocks(&self) -> &dyn ChangedBlocks {
        self
    }

    fn health(&self) -> &dyn Health {
        self
    }

    fn shared(&self) -> Option<&dyn Shared> {
        lock(&self.state).sharers.is_some().then_some(self)
    }
}

#[cfg(test)]
mod tests;
