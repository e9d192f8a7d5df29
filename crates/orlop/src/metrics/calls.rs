//! Calls and connections.

use orlop_csi::Executor;
use orlop_engine::Engine;
use orlop_model::PoolId;

use super::family::{Family, Kind};

pub(super) fn families(executor: &Executor, engine: Option<&Engine>) -> Vec<Family> {
    let stats = executor.calls();
    let mut durations = Family::new(
        "orlop_call_duration_seconds",
        Kind::Histogram,
        "Calls that have ended, by method and gRPC code, and how long they took",
    );
    for ended in stats.ended() {
        let labels = [("method", ended.method), ("code", ended.code)];
        durations = durations.with_durations(&labels, ended.durations);
    }
    let mut in_flight =
        Family::new("orlop_calls_in_flight", Kind::Gauge, "Calls that are not answered yet");
    in_flight.add_count(&[], stats.in_flight());
    let mut connections =
        Family::new("orlop_connections", Kind::Gauge, "Open connections on the daemon's sockets");
    connections.add_count(&[], stats.connections());
    let mut running = Family::new(
        "orlop_calls_running",
        Kind::Gauge,
        "Running calls, by the pool and side whose request limit they count for",
    );
    let mut waiting = Family::new(
        "orlop_calls_waiting",
        Kind::Gauge,
        "Calls that wait because the request limit of that pool and side is reached",
    );
    let name_of = |id: &PoolId| engine.and_then(|engine| engine.pool_name(id)).unwrap_or_default();
    for calls in executor.running_calls() {
        let pool = calls.pool.as_ref().map(name_of).unwrap_or_default();
        let labels = [("pool", pool), ("side", calls.side)];
        running.add_count(&labels, calls.running);
        waiting.add_count(&labels, calls.waiting);
    }
    vec![durations, in_flight, running, waiting, connections]
}
