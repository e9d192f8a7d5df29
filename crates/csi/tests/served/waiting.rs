//! Calls that wait for the locks of others, on two pools of which one does not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_csi::proto::csi::v1;
use orlop_engine::{Engine, EngineSettings};
use orlop_model::{Pool, Topology};
use orlop_pools::{MemoryPool, MemoryPoolConfig};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::gate::{Gate, GatedPool};
use crate::plugin::{MIB, NODE, Plugin, Setup, code, entry, new_volume, range};

/// Each is repeated twice: more calls than may wait for locks of one pool, and fewer than it has
/// places.
const CALLS: usize = 20;

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} never came");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A pool that answers as its gate lets it. Open again when a test fails, so that it ends.
struct Gated(Arc<Gate>);

impl Gated {
    fn pool(&self, name: &str) -> Arc<dyn Pool> {
        let config = MemoryPoolConfig {
            name: name.to_owned(),
            topology: Topology::default(),
            capacity_bytes: 1 << 40,
        };
        Arc::new(GatedPool::new(Arc::new(MemoryPool::new(config)), Arc::clone(&self.0)))
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.0.open();
    }
}

type Creating = JoinHandle<Result<tonic::Response<v1::CreateVolumeResponse>, Status>>;

fn create(plugin: &Plugin, name: &str, pool: &str) -> Creating {
    let mut controller = plugin.controller();
    let wanted = v1::CreateVolumeRequest {
        parameters: entry("pool", pool),
        capacity_range: Some(range(MIB, 0)),
        ..new_volume(name)
    };
    tokio::spawn(async move { controller.create_volume(wanted).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_waiting_on_one_pool_do_not_abort_another() {
    let plugin = Plugin::with(Setup { ready: false, ..Setup::default() }).await;
    let [sick, well] = [(); 2].map(|()| Gated(Arc::default()));
    let settings = EngineSettings {
        node_id: NODE.parse().unwrap(),
        topology: Topology::default(),
        attach: false,
        max_volumes: 8,
        default_capacity: 1 << 20,
        lock_timeout: Duration::from_secs(600),
    };
    let pools = vec![sick.pool("sick"), well.pool("well")];
    let host = Arc::clone(&plugin.host);
    plugin.executor.ready(Arc::new(Engine::new(pools, host, settings).unwrap()));
    sick.0.close();
    well.0.close();

    let names: Vec<_> = (0..CALLS).map(|number| format!("sick {number}")).collect();
    let made: Vec<_> = names.iter().map(|name| create(&plugin, name, "sick")).collect();
    until("the creations", || sick.0.waiting() == CALLS).await;
    let twice = names.iter().chain(&names);
    let again: Vec<_> = twice.map(|name| create(&plugin, name, "sick")).collect();
    until("more than may wait", || again.iter().any(JoinHandle::is_finished)).await;

    let first = create(&plugin, "well", "well");
    until("the creation on the other pool", || well.0.waiting() == 1).await;
    let second = create(&plugin, "well", "well");
    // So that it most likely waits already. If it does not, the test says less, and passes.
    tokio::time::sleep(Duration::from_millis(500)).await;
    well.0.open();
    assert_eq!(code(first.await.unwrap()), Code::Ok);
    assert_eq!(code(second.await.unwrap()), Code::Ok, "it need not have been repeated");

    sick.0.open();
    for call in made {
        assert_eq!(code(call.await.unwrap()), Code::Ok);
    }
    for call in again {
        assert!([Code::Ok, Code::Aborted].contains(&code(call.await.unwrap())));
    }
}
