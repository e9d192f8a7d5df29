//! A plugin that keeps its volumes in memory, the same for every input.

use std::sync::Arc;

use orlop_engine::request::NodeInfo;
use orlop_engine::{Engine, EngineSettings};
use orlop_host::MemoryHost;
use orlop_model::{NodeId, PoolId, Topology};
use orlop_pools::{MemoryPool, MemoryPoolConfig};

use super::{Features, Mode};

const MAX_VOLUMES: u32 = 4;

fn node() -> NodeId {
    "n1".parse().expect("it is a legal id")
}

fn topology() -> Topology {
    let segment = ("orlop.example/node".to_owned(), "n1".to_owned());
    Topology::parse([segment]).expect("it is a legal topology")
}

pub(crate) fn engine() -> Engine {
    let config = MemoryPoolConfig { topology: topology(), ..MemoryPoolConfig::default() };
    // Inputs hold ids of this pool.
    let pool = MemoryPool::with_id(PoolId::from_random([0; 4]), config);
    let settings = EngineSettings {
        node_id: node(),
        topology: topology(),
        attach: true,
        max_volumes: MAX_VOLUMES,
        default_capacity: 1 << 30,
        lock_timeout: std::time::Duration::ZERO,
    };
    let engine = Engine::new(vec![Arc::new(pool)], Arc::new(MemoryHost::default()), settings);
    engine.expect("an empty pool is in order")
}

pub(crate) fn features() -> Features {
    Features {
        driver_name: "orlop.example".to_owned(),
        version: "1.2.3".to_owned(),
        node: NodeInfo { id: node(), topology: topology(), max_volumes: MAX_VOLUMES },
        attach: true,
        limits: true,
        group_snapshots: true,
        mode: Mode::All,
    }
}
