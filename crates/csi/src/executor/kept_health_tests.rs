use orlop_engine::EngineSettings;
use orlop_host::MemoryHost;
use orlop_model::{Error, Topology};
use orlop_pools::{MemoryPool, MemoryPoolConfig};

use super::*;

fn engine() -> Arc<Engine> {
    let settings = EngineSettings {
        node_id: "node-1".parse().unwrap(),
        topology: Topology::default(),
        attach: false,
        max_volumes: 0,
        default_capacity: 1 << 30,
        lock_timeout: Duration::ZERO,
    };
    let pool = Arc::new(MemoryPool::new(MemoryPoolConfig::default()));
    Arc::new(Engine::new(vec![pool], Arc::new(MemoryHost::default()), settings).unwrap())
}

/// All is well, but for a pool that will soon be full.
fn good() -> HealthReport {
    HealthReport { short: vec!["pool default is below its floor".to_owned()], ..Default::default() }
}

#[test]
fn good_report_is_kept_for_a_second() {
    let (kept, engine, since) = (KeptHealth::default(), engine(), Instant::now());
    assert_eq!(kept.report(&engine, since), None);
    kept.keep(&engine, since, &good());
    let just_in_time = since + KEPT_FOR - Duration::from_nanos(1);
    assert_eq!(kept.report(&engine, just_in_time), Some(good()));
    assert_eq!(kept.report(&engine, since + KEPT_FOR), None);
}

#[test]
fn bad_report_is_not_kept() {
    let (kept, engine, now) = (KeptHealth::default(), engine(), Instant::now());
    kept.keep(&engine, now, &good());
    let failed = vec![Error::failed("read pool", "its disk is gone")];
    kept.keep(&engine, now, &HealthReport { failed, ..good() });
    assert_eq!(kept.report(&engine, now), None);
    kept.keep(&engine, now, &good());
    kept.discard();
    assert_eq!(kept.report(&engine, now), None);
}

#[test]
fn report_is_of_the_pools_that_are_served_now() {
    let (kept, now) = (KeptHealth::default(), Instant::now());
    let before = engine();
    kept.keep(&before, now, &good());
    assert_eq!(kept.report(&engine(), now), None);
    assert_eq!(kept.report(&before, now), Some(good()));
}
