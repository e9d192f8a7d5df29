//! orlop.monitor.v1.Monitor: I/O, objects, pools and events of this daemon, for `orlop top` and other commands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_engine::{Engine, ObjectCounts, PoolFigures, StagedIo, VolumeIo, VolumeUsage};
use orlop_model::{Footprint, IoLimits, PoolSpace, Result, SnapshotRecord};

use super::unary_calls;
use crate::event_log::Event;
use crate::executor::{Executor, Subject};
use crate::features::Features;
use crate::parse;
use crate::proto::monitor;
use crate::proto::monitor::monitor_server;

/// As many volumes as a node is meant to have.
const MAX_VOLUMES: usize = 1000;
/// How many volumes or snapshots one message lists.
const MAX_USAGE: usize = 10_000;
/// In one message. It stays far below gRPC's limit of 4 MiB.
const MAX_EVENTS: usize = 500;
/// A pool that is busy with other queries, such as a scrape of metrics, is queried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
const RETRY_TIMEOUT: Duration = Duration::from_millis(200);

pub(crate) struct Monitor {
    executor: Arc<Executor>,
    features: Arc<Features>,
}

impl Monitor {
    pub(crate) fn new(executor: Arc<Executor>, features: Arc<Features>) -> Self {
        Self { executor, features }
    }

    async fn list_volume_io(
        &self,
        _request: monitor::ListVolumeIoRequest,
    ) -> Result<monitor::ListVolumeIoResponse> {
        let staged = self.executor.run(Subject::Any, staged_io).await?;
        Ok(monitor::ListVolumeIoResponse {
            node_id: self.features.node.id.to_string(),
            volumes: staged.volumes.iter().map(volume_io).collect(),
            left_out: u64::try_from(staged.left_out).unwrap_or(u64::MAX),
            silent_pools: staged.missing_pools,
        })
    }

    async fn list_volume_usage(
        &self,
        _request: monitor::ListVolumeUsageRequest,
    ) -> Result<monitor::ListVolumeUsageResponse> {
        let usage = |engine: &Engine| Ok(engine.volume_usage(MAX_USAGE));
        let found = self.executor.run(Subject::Any, usage).await?;
        let volume = |volume: VolumeUsage| monitor::VolumeUsage {
            volume_id: volume.id.to_string(),
            used_bytes: volume.used_bytes,
            name: volume.name.as_str().to_owned(),
            limits: limits_of(volume.limits),
        };
        Ok(monitor::ListVolumeUsageResponse { volumes: found.into_iter().map(volume).collect() })
    }

    async fn list_snapshot_names(
        &self,
        _request: monitor::ListSnapshotNamesRequest,
    ) -> Result<monitor::ListSnapshotNamesResponse> {
        let read = |engine: &Engine| Ok(engine.snapshots_in_memory(MAX_USAGE));
        let found = self.executor.run(Subject::Any, read).await?;
        let snapshot = |record: SnapshotRecord| monitor::SnapshotName {
            snapshot_id: record.id.to_string(),
            name: record.name.as_str().to_owned(),
            consistency: record.consistency.as_str().to_owned(),
        };
        Ok(monitor::ListSnapshotNamesResponse {
            snapshots: found.into_iter().map(snapshot).collect(),
        })
    }

    async fn list_footprints(
        &self,
        request: monitor::ListFootprintsRequest,
    ) -> Result<monitor::ListFootprintsResponse> {
        parse::require([("volume_id", !request.volume_id.is_empty())])?;
        let id = parse::volume_id("volume_id", &request.volume_id)?;
        let measure =
            move |engine: &Engine| engine.volume_and_copies(&id).map(|found| (id, found.1));
        let (id, copies) = self.executor.run(Subject::Any, measure).await?;
        let own = footprint(&id.to_string(), copies.footprint);
        let snapshots = copies.snapshots.iter();
        let snapshots = snapshots.map(|it| footprint(&it.record.id.to_string(), it.footprint));
        let volumes = copies.volumes.iter();
        let volumes = volumes.map(|it| footprint(&it.record.id.to_string(), it.footprint));
        let objects = std::iter::once(own).chain(snapshots).chain(volumes).flatten().collect();
        Ok(monitor::ListFootprintsResponse { objects })
    }

    async fn list_pools(
        &self,
        _request: monitor::ListPoolsRequest,
    ) -> Result<monitor::ListPoolsResponse> {
        let figures = |engine: &Engine| Ok(engine.pool_figures());
        let pools = self.executor.run(Subject::Any, figures).await?;
        Ok(monitor::ListPoolsResponse {
            node_id: self.features.node.id.to_string(),
            pools: pools.into_iter().map(pool_status).collect(),
        })
    }

    /// From memory alone, also while pools are opened or hang.
    async fn list_events(
        &self,
        request: monitor::ListEventsRequest,
    ) -> Result<monitor::ListEventsResponse> {
        let log = self.executor.events();
        let after = if request.instance == log.instance() { request.after } else { 0 };
        let limit = match usize::try_from(request.max_entries) {
            Ok(0) | Err(_) => MAX_EVENTS,
            Ok(max) => max.min(MAX_EVENTS),
        };
        let page = log.after(after, limit);
        Ok(monitor::ListEventsResponse {
            instance: log.instance().to_owned(),
            events: page.events.iter().map(|event| event_message(event)).collect(),
            forgotten: page.forgotten,
            more: page.more,
        })
    }
}

fn footprint(id: &str, found: Option<Footprint>) -> Option<monitor::Footprint> {
    let Footprint { taken, exclusive } = found?;
    Some(monitor::Footprint { id: id.to_owned(), taken_bytes: taken, exclusive_bytes: exclusive })
}

fn pool_status(pool: PoolFigures) -> monitor::PoolStatus {
    let of = |part: fn(&PoolSpace) -> Option<u64>| pool.space.as_ref().and_then(part);
    let objects = pool.objects.as_ref();
    let count = |part: fn(&ObjectCounts) -> usize| {
        objects.map(|objects| u64::try_from(part(objects)).unwrap_or(u64::MAX))
    };
    let by_reason = objects.map(|objects| &objects.volumes_by_reason).into_iter().flatten();
    let by_reason = by_reason.map(|(reason, volumes)| {
        (reason.as_str().to_owned(), u64::try_from(*volumes).unwrap_or(u64::MAX))
    });
    monitor::PoolStatus {
        pool_id: pool.id.as_ref().map(ToString::to_string).unwrap_or_default(),
        state: pool.state.as_str().to_owned(),
        problem: pool.problem.clone().unwrap_or_default(),
        volumes_by_reason: by_reason.collect(),
        size_bytes: of(|space| space.size),
        free_bytes: of(|space| space.free),
        stored_bytes: of(|space| space.stored),
        shared_bytes: of(|space| space.shared),
        floor_bytes: of(|space| space.floor),
        promised_bytes: of(|space| space.promised),
        reserved_bytes: of(|space| space.reserved),
        available_bytes: of(|space| Some(space.available)),
        overcommit_percent: pool.space.as_ref().and_then(|space| space.overcommit_percent),
        metadata_size_bytes: of(|space| space.metadata_size),
        metadata_used_bytes: of(|space| space.metadata_used),
        volumes: count(|objects| objects.normal_volumes + objects.abnormal_volumes),
        abnormal_volumes: count(|objects| objects.abnormal_volumes),
        snapshots: count(|objects| objects.normal_snapshots + objects.abnormal_snapshots),
        abnormal_snapshots: count(|objects| objects.abnormal_snapshots),
        name: pool.name,
    }
}

fn event_message(event: &Event) -> monitor::Event {
    monitor::Event {
        sequence: event.sequence,
        time: Some(event.time.into()),
        level: event.level.to_owned(),
        kind: event.kind.to_owned(),
        message: event.message.clone(),
        fields: event.fields.clone(),
    }
}

fn staged_io(engine: &Engine) -> Result<StagedIo> {
    let begun = Instant::now();
    loop {
        let found = engine.volume_io(MAX_VOLUMES)?;
        if found.missing_pools.is_empty() || begun.elapsed() >= RETRY_TIMEOUT {
            return Ok(found);
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

fn volume_io(VolumeIo { id, name, pool, io, limits }: &VolumeIo) -> monitor::VolumeIo {
    monitor::VolumeIo {
        volume_id: id.to_string(),
        name: name.as_str().to_owned(),
        pool: pool.clone(),
        reads: io.reads,
        writes: io.writes,
        bytes_read: io.bytes_read,
        bytes_written: io.bytes_written,
        read_nanoseconds: nanoseconds(io.read_time),
        write_nanoseconds: nanoseconds(io.write_time),
        busy_nanoseconds: nanoseconds(io.busy_time),
        in_flight: io.in_flight,
        limits: limits_of(*limits),
    }
}

fn limits_of(limits: IoLimits) -> BTreeMap<String, u64> {
    limits.entries().map(|(key, limit)| (key.to_owned(), limit)).collect()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

unary_calls! {
    impl monitor_server::Monitor, for Monitor, with monitor {
        list_volume_io(ListVolumeIoRequest) -> ListVolumeIoResponse;
        list_volume_usage(ListVolumeUsageRequest) -> ListVolumeUsageResponse;
        list_snapshot_names(ListSnapshotNamesRequest) -> ListSnapshotNamesResponse;
        list_footprints(ListFootprintsRequest) -> ListFootprintsResponse;
        list_pools(ListPoolsRequest) -> ListPoolsResponse;
        list_events(ListEventsRequest) -> ListEventsResponse;
    }
}
