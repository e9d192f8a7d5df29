#![allow(clippy::unwrap_used)]

use orlop_host::MemoryHost;
use orlop_model::Topology;
use orlop_pools::{MemoryPool, MemoryPoolConfig};

use super::*;
use crate::EngineSettings;

const LONG: Duration = Duration::from_secs(60);

fn pool(name: &str) -> PoolRef {
    let config = MemoryPoolConfig {
        name: name.to_owned(),
        topology: Topology::default(),
        capacity_bytes: 1 << 30,
    };
    Arc::new(MemoryPool::new(config))
}

fn breaker() -> Arc<PoolBreaker> {
    Arc::new(PoolBreaker::of(pool("default")))
}

fn query(breaker: &Arc<PoolBreaker>) -> Result<BreakerPermit> {
    breaker.admit(1, LONG, |state| &mut state.queries)
}

fn foreign_call(breaker: &Arc<PoolBreaker>) -> Result<BreakerPermit> {
    breaker.admit(1, LONG, |state| &mut state.foreign_calls)
}

/// Foreign calls and queries wait side by side; a permit that one kind cannot use must reach the other.
#[test]
fn freed_permit_reaches_a_waiter_of_either_kind() {
    let breaker = breaker();
    let (asking, visiting) = (query(&breaker).unwrap(), foreign_call(&breaker).unwrap());
    thread::scope(|scope| {
        let second_foreign_call = scope.spawn(|| foreign_call(&breaker).is_ok());
        // So that it most likely waits already. If it does not, the test says less, and passes.
        thread::sleep(Duration::from_millis(300));
        let second_query = scope.spawn(|| query(&breaker).is_ok());
        thread::sleep(Duration::from_millis(300));
        drop(asking);
        assert!(second_query.join().unwrap());
        drop(visiting);
        assert!(second_foreign_call.join().unwrap());
    });
}

/// Else an administrator looks for a broken disk where there is only much to do.
#[test]
fn too_many_calls_are_not_reported_as_a_hung_pool() {
    let breaker = breaker();
    let _visiting = foreign_call(&breaker).unwrap();
    let refusal = breaker.admit(1, Duration::ZERO, |state| &mut state.foreign_calls).err().unwrap();
    assert!(matches!(refusal, Error::Unreachable { .. }), "{refusal:?}");
    let text = refusal.to_string();
    assert!(text.contains("1 call") && text.contains("pool default"), "{text}");
    assert!(!text.contains("disk") && text.ends_with("try again"), "{text}");
    assert!(breaker.admit(1, Duration::ZERO, |state| &mut state.queries).is_ok());
}

#[test]
fn foreign_call_on_a_hung_pool_counts_for_its_home_pool() {
    let [home, other] = ["home", "other"].map(pool);
    let settings = EngineSettings {
        node_id: "n1".parse().unwrap(),
        topology: Topology::default(),
        attach: false,
        max_volumes: 1,
        default_capacity: 1 << 20,
        lock_timeout: Duration::ZERO,
    };
    let pools = vec![Arc::clone(&home), Arc::clone(&other)];
    let engine = Engine::new(pools, Arc::new(MemoryHost::default()), settings).unwrap();
    let call = engine.admit_foreign_call(&other, Some(home.id())).unwrap();
    let _of_no_pool = engine.admit_foreign_call(&other, None).unwrap();
    let lost = || (engine.calls_hung_elsewhere(home.id()), engine.calls_hung_elsewhere(other.id()));
    assert_eq!(lost(), (0, 0), "it answers");
    engine.breakers()[other.id()].state().probe_began = Instant::now().checked_sub(PROBE_TIMEOUT);
    assert_eq!(lost(), (1, 0));
    drop(call);
    assert_eq!(lost(), (0, 0));
}
