//! Pools, and what is in them.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use orlop_engine::{PoolFigures, PoolState};
use orlop_model::HealthReason;

use super::family::{Family, Kind};
use super::trend::Trends;

pub(super) fn families(pools: &[PoolFigures], trends: &Mutex<Trends>) -> Vec<Family> {
    let mut all = states(pools);
    all.extend(spaces(pools));
    all.push(until_full(pools, trends));
    all.extend(objects(pools));
    all
}

fn states(pools: &[PoolFigures]) -> Vec<Family> {
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let mut info = gauge("orlop_pool_info", "The id of each pool in service");
    let mut up = gauge("orlop_pool_up", "1 while the pool serves");
    let mut state = gauge("orlop_pool_state", "1 for the state that the pool is in");
    let mut short = gauge(
        "orlop_pool_below_floor",
        "1 while nothing can be created on the pool: it is below its floor, or full",
    );
    let mut attach = Family::new(
        "orlop_attach_failures",
        Kind::Counter,
        "Volumes that could not be attached to this node",
    );
    for pool in pools {
        let name = pool.name.as_str();
        up.add(&[("pool", name)], u64::from(pool.state == PoolState::Up));
        for one in PoolState::ALL {
            let labels = [("pool", name), ("state", one.as_str())];
            state.add(&labels, u64::from(pool.state == one));
        }
        if let Some(is_below_floor) = pool.is_below_floor {
            short.add(&[("pool", name)], u64::from(is_below_floor));
        }
        if let Some(id) = &pool.id {
            info.add(&[("pool", name), ("pool_id", &id.to_string())], 1_u64);
            attach.add(&[("pool", name)], pool.attach_failures);
        }
    }
    vec![info, up, state, short, attach]
}

fn spaces(pools: &[PoolFigures]) -> Vec<Family> {
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let mut size =
        gauge("orlop_pool_size_bytes", "Size of the filesystem or thin pool that the pool is on");
    let mut free = gauge(
        "orlop_pool_free_bytes",
        "Free space of the filesystem or thin pool that the pool is on",
    );
    let mut used =
        gauge("orlop_pool_used_bytes", "Used space of it, including what is not Orlop's");
    let mut stored =
        gauge("orlop_pool_stored_bytes", "Space that the files of the pool take of it");
    let mut shared = gauge(
        "orlop_pool_shared_bytes",
        "Space that copies share with their sources and that is stored once, at most",
    );
    let mut floor = gauge("orlop_pool_floor_bytes", "Free space below which nothing is created");
    let mut promised = gauge(
        "orlop_pool_promised_bytes",
        "Sizes of all volumes, and the space that snapshots may need",
    );
    let mut reserved = gauge("orlop_pool_reserved_bytes", "Space that running calls will promise");
    let mut available =
        gauge("orlop_pool_available_bytes", "Space that can still be promised to thin volumes");
    let mut overcommit = gauge(
        "orlop_pool_overcommit_ratio",
        "How much may be promised to volumes, as a multiple of the space",
    );
    let mut metadata =
        gauge("orlop_pool_metadata_size_bytes", "Size of the metadata that says where data is");
    let mut metadata_used = gauge("orlop_pool_metadata_used_bytes", "Used space of that metadata");
    for pool in pools {
        let Some(space) = pool.space else { continue };
        let labels = [("pool", pool.name.as_str())];
        let taken = space.size.zip(space.free).map(|(size, free)| size.saturating_sub(free));
        for (family, bytes) in [
            (&mut size, space.size),
            (&mut free, space.free),
            (&mut used, taken),
            (&mut stored, space.stored),
            (&mut shared, space.shared),
            (&mut floor, space.floor),
            (&mut promised, space.promised),
            (&mut reserved, space.reserved),
            (&mut available, Some(space.available)),
            (&mut metadata, space.metadata_size),
            (&mut metadata_used, space.metadata_used),
        ] {
            if let Some(bytes) = bytes {
                family.add(&labels, bytes);
            }
        }
        if let Some(percent) = space.overcommit_percent {
            overcommit.add_real(&labels, f64::from(percent) / 100.0);
        }
    }
    let metadata = [metadata, metadata_used];
    let all = [size, free, used, stored, shared, floor, promised, reserved, available, overcommit];
    all.into_iter().chain(metadata).collect()
}

/// By what earlier questions for metrics have seen.
fn until_full(pools: &[PoolFigures], trends: &Mutex<Trends>) -> Family {
    let help = "When the pool will be at its floor, by the trend of the last day; +Inf if it does not fill up";
    let mut family = Family::new("orlop_pool_until_full_seconds", Kind::Gauge, help);
    let mut trends = trends.lock().unwrap_or_else(PoisonError::into_inner);
    for pool in pools {
        let Some((free, floor)) = pool.space.and_then(|space| space.free.zip(space.floor)) else {
            continue;
        };
        let left = free.saturating_sub(floor);
        let until = trends.note(&pool.name, Instant::now(), left);
        family.add_real(&[("pool", &pool.name)], until);
    }
    family
}

fn objects(pools: &[PoolFigures]) -> Vec<Family> {
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let mut volumes = gauge("orlop_volumes", "Volumes of the pool, by their condition");
    let mut lost = gauge("orlop_volumes_with_lost_writes", "Volumes staged here with lost writes");
    let mut with_problem = gauge(
        "orlop_volumes_with_problem",
        "Volumes that have a problem, by its reason in the health calls",
    );
    let mut snapshots = gauge("orlop_snapshots", "Snapshots of the pool, by their condition");
    for pool in pools {
        let Some(objects) = &pool.objects else { continue };
        let name = pool.name.as_str();
        volumes.add_count(&[("pool", name), ("condition", "normal")], objects.normal_volumes);
        volumes.add_count(&[("pool", name), ("condition", "abnormal")], objects.abnormal_volumes);
        lost.add_count(&[("pool", name)], objects.volumes_with(HealthReason::WritesLost));
        for (reason, count) in &objects.volumes_by_reason {
            with_problem.add_count(&[("pool", name), ("reason", reason.as_str())], *count);
        }
        let of = |condition| [("pool", name), ("condition", condition)];
        snapshots.add_count(&of("normal"), objects.normal_snapshots);
        snapshots.add_count(&of("abnormal"), objects.abnormal_snapshots);
    }
    vec![volumes, with_problem, lost, snapshots]
}
