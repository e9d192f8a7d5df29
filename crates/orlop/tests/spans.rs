//! A daemon that exports the spans of its calls, and a collector that takes them, or does not.
//!
//! The collector reads the bytes that arrive by the numbers of OTLP's .proto files, and not by the types that wrote
//! them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what it expects by unwrapping it"
)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use orlop_csi::proto::csi::v1;
use prost::bytes::{Buf, BufMut, Bytes};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::{TcpListener, UnixStream};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::Service;
use tonic::codegen::http;
use tonic::server::{Grpc, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

const TIMEOUT: Duration = Duration::from_secs(60);
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Messages as they come, and empty answers.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = ();
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&[]);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining()).to_vec()))
    }
}

/// What a collector has received.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Vec<u8>>>>);

impl UnaryService<Vec<u8>> for Collector {
    type Response = ();
    type Future = std::future::Ready<Result<Response<()>, Status>>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        self.0.lock().unwrap().push(request.into_inner());
        std::future::ready(Ok(Response::new(())))
    }
}

impl Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let collector = self.clone();
        Box::pin(async move {
            assert_eq!(request.uri().path(), METHOD);
            Ok(Grpc::new(Raw).unary(collector, request).await)
        })
    }
}

/// Begins each answer, and never ends it.
#[derive(Clone, Default)]
struct HangingCollector(Arc<AtomicUsize>);

struct Endless;

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Status>>> {
        Poll::Pending
    }
}

impl Service<http::Request<Body>> for HangingCollector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        self.0.fetch_add(1, Ordering::SeqCst);
        let answer = http::Response::builder().header("content-type", "application/grpc");
        std::future::ready(Ok(answer.body(Body::new(Endless)).unwrap()))
    }
}

impl Collector {
    async fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = Self::default();
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        tokio::spawn(Server::builder().serve_with_incoming(collector.clone(), incoming));
        (collector, address)
    }

    /// ExportTraceServiceRequest.resource_spans, ResourceSpans.scope_spans, ScopeSpans.spans.
    fn spans(&self) -> Vec<Fields> {
        let messages = self.0.lock().unwrap().clone();
        let down = |of: Vec<Fields>, number| -> Vec<Fields> {
            of.iter().flat_map(|message| message.all(number)).map(|it| Fields::of(&it)).collect()
        };
        let requests = messages.iter().map(|bytes| Fields::of(bytes)).collect();
        down(down(down(requests, 1), 2), 2)
    }

    async fn span(&self, method: &str) -> Fields {
        let begun = Instant::now();
        loop {
            // Span.name
            let found = self.spans().into_iter().find(|span| span.text(5) == method);
            if let Some(found) = found {
                return found;
            }
            assert!(begun.elapsed() < TIMEOUT, "no span of {method} has arrived");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The fields of a protobuf message by their numbers.
#[derive(Debug, Clone)]
struct Fields(Vec<(u64, Vec<u8>)>);

impl Fields {
    fn of(mut message: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !message.is_empty() {
            let key = prost::encoding::decode_varint(&mut message).unwrap();
            let value = match key & 7 {
                0 => prost::encoding::decode_varint(&mut message).unwrap().to_le_bytes().to_vec(),
                1 => message.split_off(..8).unwrap().to_vec(),
                2 => {
                    let length = prost::encoding::decode_varint(&mut message).unwrap();
                    message.split_off(..usize::try_from(length).unwrap()).unwrap().to_vec()
                }
                other => panic!("a field of type {other}"),
            };
            fields.push((key >> 3, value));
        }
        Self(fields)
    }

    fn all(&self, number: u64) -> Vec<Vec<u8>> {
        self.0.iter().filter(|(it, _)| *it == number).map(|(_, value)| value.clone()).collect()
    }

    fn first(&self, number: u64) -> Vec<u8> {
        self.all(number).into_iter().next().unwrap_or_default()
    }

    fn text(&self, number: u64) -> String {
        String::from_utf8(self.first(number)).unwrap()
    }

    fn hex(&self, number: u64) -> String {
        self.first(number).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn number(&self, number: u64) -> u64 {
        let bytes = self.first(number);
        u64::from_le_bytes(bytes.try_into().unwrap_or_default())
    }

    /// Span.attributes, each a KeyValue with an AnyValue.
    fn attribute(&self, key: &str) -> Option<Fields> {
        let all = self.all(9).into_iter().map(|it| Fields::of(&it));
        let found = all.into_iter().find(|it| it.text(1) == key)?;
        Some(Fields::of(&found.first(2)))
    }
}

struct Daemon {
    child: Child,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Daemon {
    async fn start(endpoint: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the binary under test is no host tool")]
        let child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .arg("serve")
            .env_clear()
            .env("CSI_ENDPOINT", format!("unix://{}", socket.display()))
            .env("ORLOP_POOL", directory.path().join("pool"))
            .env("ORLOP_RUN_DIR", directory.path().join("run"))
            .env("ORLOP_NODE_ID", "test-node")
            .env("ORLOP_OTLP_ENDPOINT", endpoint)
            .env(
                "ORLOP_METRICS_LISTEN",
                format!("unix://{}", metrics_in(directory.path()).display()),
            )
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self { child, socket, _directory: directory };
        let begun = Instant::now();
        while !daemon.is_ready().await {
            assert!(begun.elapsed() < TIMEOUT, "the daemon does not get ready: {}", daemon.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        daemon
    }

    async fn is_ready(&self) -> bool {
        let Ok(channel) = self.connect().await else { return false };
        let mut client = v1::identity_client::IdentityClient::new(channel);
        let answer = client.probe(v1::ProbeRequest {}).await;
        answer.is_ok_and(|answer| answer.into_inner().ready == Some(true))
    }

    async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        let socket = self.socket.clone();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://daemon").connect_with_connector(connector).await
    }

    async fn create(&self, name: &str, trace_parent: Option<&str>) -> Result<(), Status> {
        let block = v1::volume_capability::AccessType::Block(v1::volume_capability::BlockVolume {});
        let mode = v1::volume_capability::access_mode::Mode::SingleNodeWriter;
        let mut request = Request::new(v1::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(v1::CapacityRange { required_bytes: 1 << 20, limit_bytes: 0 }),
            volume_capabilities: vec![v1::VolumeCapability {
                access_type: Some(block),
                access_mode: Some(v1::volume_capability::AccessMode { mode: mode.into() }),
            }],
            ..Default::default()
        });
        if let Some(text) = trace_parent {
            request.metadata_mut().insert("traceparent", text.parse().unwrap());
        }
        let mut client =
            v1::controller_client::ControllerClient::new(self.connect().await.unwrap());
        client.create_volume(request).await.map(drop)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.socket.with_file_name("log")).unwrap_or_default()
    }

    async fn metric(&self, name: &str) -> Option<u64> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let path = metrics_in(self.socket.parent().unwrap());
        let mut stream = UnixStream::connect(path).await.unwrap();
        let question = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(question).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.map(|value| value.trim().parse().unwrap())
    }
}

fn metrics_in(directory: &Path) -> PathBuf {
    directory.join("metrics.sock")
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_span_of_its_callers_trace() {
    let (collector, address) = Collector::start().await;
    let daemon = Daemon::start(&format!("http://{address}")).await;
    daemon.create("traced", Some(&format!("00-{TRACE}-{PARENT}-01"))).await.unwrap();
    let span = collector.span("CreateVolume").await;
    assert_eq!(span.hex(1), TRACE);
    assert_eq!(span.hex(4), PARENT);
    assert_eq!(span.first(2).len(), 8);
    assert_ne!(span.hex(2), PARENT);
    assert_eq!(span.number(6), 2, "SPAN_KIND_SERVER");
    assert!(span.number(7) > 1_600_000_000_000_000_000, "nanoseconds since 1970");
    assert!(span.number(8) >= span.number(7));
    assert_eq!(span.attribute("rpc.system").unwrap().text(1), "grpc");
    assert_eq!(span.attribute("rpc.grpc.status_code").unwrap().number(3), 0);
    assert_eq!(span.attribute("orlop.volume_name").unwrap().text(1), "traced");
    assert!(daemon.log().contains(&format!("trace_id=\"{TRACE}\"")), "{}", daemon.log());
    assert_eq!(daemon.metric("orlop_trace_spans_dropped_total").await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_sampled_calls_and_changes_are_exported() {
    let (collector, address) = Collector::start().await;
    let daemon = Daemon::start(&format!("http://{address}")).await;
    daemon.create("not-sampled", Some(&format!("00-{TRACE}-{PARENT}-00"))).await.unwrap();
    daemon.create("malformed", Some("00-nonsense")).await.unwrap();
    daemon.create("untraced", None).await.unwrap();
    let begun = Instant::now();
    while collector.spans().len() < 2 {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", collector.spans().len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let spans = collector.spans();
    let names: Vec<String> =
        spans.iter().map(|span| span.attribute("orlop.volume_name").unwrap().text(1)).collect();
    assert_eq!(names, ["malformed", "untraced"], "Probe and what is not sampled are left out");
    assert_ne!(spans[0].hex(1), spans[1].hex(1), "each begins a trace");
    assert!(spans.iter().all(|span| span.first(4).is_empty()), "without a parent");
}

/// Nothing listens there, and no call notices.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_spans_are_dropped_and_counted() {
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let daemon = Daemon::start(&format!("http://{nowhere}")).await;
    for number in 0..10 {
        daemon.create(&format!("v{number}"), None).await.unwrap();
    }
    let begun = Instant::now();
    while daemon.metric("orlop_trace_spans_dropped_total").await != Some(10) {
        assert!(begun.elapsed() < TIMEOUT, "{}", daemon.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let warnings = daemon.log().matches("cannot export spans").count();
    assert_eq!(warnings, 1, "{}", daemon.log());
}

/// The end of a daemon waits for no collector.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_holds_up_no_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let collector = HangingCollector::default();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(Server::builder().serve_with_incoming(collector.clone(), incoming));
    let mut daemon = Daemon::start(&format!("http://{address}")).await;
    daemon.create("v", None).await.unwrap();
    let begun = Instant::now();
    while collector.0.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < TIMEOUT, "no span has arrived: {}", daemon.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    kill_process(Pid::from_child(&daemon.child), Signal::TERM).unwrap();
    let begun = Instant::now();
    while daemon.child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < TIMEOUT, "it does not end: {}", daemon.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(daemon.log().contains("stopped"), "{}", daemon.log());
}
