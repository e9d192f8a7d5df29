//! orlop.monitor.v1.Monitor: I/O, usage and events of this daemon, for `orlop top` and `orlop events`.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orlop_engine::{Engine, StagedIo, VolumeIo};
use orlop_model::{Result, VolumeId};

use super::unary_calls;
use crate::event_log::Event;
use crate::executor::{Executor, Subject};
use crate::features::Features;
use crate::proto::monitor;
use crate::proto::monitor::monitor_server;

/// As many volumes as a node is meant to have.
const MAX_VOLUMES: usize = 1000;
/// How many volumes one message lists.
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
        let volume = |(id, used_bytes): (VolumeId, u64)| monitor::VolumeUsage {
            volume_id: id.to_string(),
            used_bytes,
        };
        Ok(monitor::ListVolumeUsageResponse { volumes: found.into_iter().map(volume).collect() })
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
        limits: limits.entries().map(|(key, limit)| (key.to_owned(), limit)).collect(),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

unary_calls! {
    impl monitor_server::Monitor, for Monitor, with monitor {
        list_volume_io(ListVolumeIoRequest) -> ListVolumeIoResponse;
        list_volume_usage(ListVolumeUsageRequest) -> ListVolumeUsageResponse;
        list_events(ListEventsRequest) -> ListEventsResponse;
    }
}
