//! The spans of calls, sent to an OpenTelemetry collector by OTLP over gRPC (decision 0062). Only in builds with the
//! feature `otel`, and only with `ORLOP_OTLP_ENDPOINT`.
//!
//! Calls do not wait for it: spans are queued, and a task sends them. Spans are dropped and counted if the queue is full or
//! the collector does not accept them.

mod collector;
mod messages;
mod queue;

use std::pin::pin;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::config::Config;
pub(crate) use collector::SpanCollector;
use messages::{
    ExportRequest, ExportResponse, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span,
};
use queue::QUEUE;

const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Until the whole answer is here: a collector may send the beginning of one.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the process waits at its end for the last export.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// How many spans were dropped since the start; `None`: spans are not exported.
pub(crate) fn dropped_spans() -> Option<u64> {
    QUEUE.is_open().then(|| QUEUE.dropped())
}

/// Sends spans until the daemon stops, and then the remaining ones.
pub(crate) async fn export(
    endpoint: String,
    of_daemon: OfDaemon,
    mut stopped: watch::Receiver<bool>,
) {
    let channel = match Endpoint::from_shared(endpoint) {
        Ok(endpoint) => endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy(),
        Err(error) => {
            tracing::error!(%error, "cannot export spans: ORLOP_OTLP_ENDPOINT is not an address");
            return;
        }
    };
    let mut exporter =
        Exporter { client: Grpc::new(channel), resource: of_daemon.resource(), fails: false };
    QUEUE.open();
    orlop_csi::export_spans();
    let mut exporting = pin!(exporter.send_until_closed());
    tokio::select! {
        () = &mut exporting => {}
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    QUEUE.close();
    // A collector that does not answer must not delay the stop, whatever is being sent to it.
    let _ = timeout(LAST_EXPORT_TIMEOUT, exporting).await;
}

/// The daemon that the spans are from.
pub(crate) struct OfDaemon {
    node: String,
    driver: String,
}

impl OfDaemon {
    pub(crate) fn of(config: &Config) -> Self {
        Self { node: config.node_id.to_string(), driver: config.driver_name.clone() }
    }

    fn resource(&self) -> Resource {
        let version = env!("CARGO_PKG_VERSION");
        Resource {
            attributes: vec![
                KeyValue::text("service.name", "orlop"),
                KeyValue::text("service.version", version),
                KeyValue::text("service.instance.id", &self.node),
                KeyValue::text("host.name", &self.node),
                KeyValue::text("orlop.driver", &self.driver),
            ],
        }
    }
}

struct Exporter {
    client: Grpc<Channel>,
    resource: Resource,
    /// A failure was logged; further ones are not until an export succeeds.
    fails: bool,
}

impl Exporter {
    /// And what is in the queue by then.
    async fn send_until_closed(&mut self) {
        loop {
            let is_open = QUEUE.is_open();
            while let Some(batch) = QUEUE.take_batch() {
                self.send(batch).await;
            }
            if !is_open {
                return;
            }
            QUEUE.filled().await;
        }
    }

    async fn send(&mut self, spans: Vec<Span>) {
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let sent = timeout(EXPORT_TIMEOUT, self.try_send(spans)).await;
        let late = |_| Err(Status::deadline_exceeded("the collector has not answered in time"));
        match sent.unwrap_or_else(late) {
            Ok(rejected) => {
                QUEUE.note_dropped(rejected.min(count));
                if std::mem::take(&mut self.fails) {
                    tracing::info!("spans are exported again");
                }
            }
            Err(status) => {
                QUEUE.note_dropped(count);
                if !std::mem::replace(&mut self.fails, true) {
                    let (code, reason) = (status.code(), status.message());
                    tracing::warn!(
                        ?code,
                        reason,
                        "cannot export spans; they are dropped until it works"
                    );
                }
            }
        }
    }

    /// How many of the spans the collector rejected.
    async fn try_send(&mut self, spans: Vec<Span>) -> Result<u64, Status> {
        let scope =
            Scope { name: "orlop".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let of_scope = ScopeSpans { scope: Some(scope), spans };
        let resource = Some(self.resource.clone());
        let message = ExportRequest {
            resource_spans: vec![ResourceSpans { resource, scope_spans: vec![of_scope] }],
        };
        let unreachable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        self.client.ready().await.map_err(unreachable)?;
        let codec: ProstCodec<ExportRequest, ExportResponse> = ProstCodec::default();
        let path = PathAndQuery::from_static(METHOD);
        let answer = self.client.unary(Request::new(message), path, codec).await?;
        let partial = answer.into_inner().partial_success;
        Ok(partial.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or(0)))
    }
}
